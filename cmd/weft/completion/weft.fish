# fish completion of weft: weft completion fish > ~/.config/fish/completions/weft.fish
function __weft_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path "$current"
            case ':folders'
                __fish_complete_directories "$current"
            case ':commands'
                __fish_complete_command
            case '*'
                echo $line
        end
    end
end
complete -c weft -f -a '(__weft_complete)'
