# bash completion of weft: source <(weft completion bash)
_weft() {
	local IFS=$'\n' line word cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
	[[ $cur == "=" || $cur == ":" ]] && before=$cur cur=
	COMPREPLY=()
	while read -r line; do
		word=${line%%$'\t'*}
		case $word in
		:files) compopt -o filenames && COMPREPLY+=($(compgen -f -- "$cur")) ;;
		:folders) compopt -o filenames && COMPREPLY+=($(compgen -d -- "$cur")) ;;
		:commands)
			COMPREPLY+=($(compgen -c -- "$cur"))
			[[ $cur == */* ]] && compopt -o filenames && COMPREPLY+=($(compgen -f -- "$cur"))
			;;
		*)
			[[ $before == ":" ]] && word=${word##*:}
			COMPREPLY+=("$word")
			;;
		esac
	done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _weft weft
