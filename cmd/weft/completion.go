package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand writes a shell's script.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is what weft completion --help adds.
func (completionCommand) Help() string {
	return `It completes commands, flags, their values, and the IDs of jobs that are there.

Examples:
  source <(weft completion bash)
  weft completion bash > ~/.local/share/bash-completion/completions/weft
  weft completion zsh > ~/.zfunc/_weft
  weft completion fish > ~/.config/fish/completions/weft.fish`
}

// The scripts hand the words before the cursor to weft __complete, which lists what may come: a word a line, a tab and a
// description behind it. A line that begins with a colon asks the shell itself: :files, :folders, :commands.
//
//go:embed completion/weft.bash
var bashScript string

//go:embed completion/_weft
var zshScript string

//go:embed completion/weft.fish
var fishScript string

// Run implements the command.
func (c *completionCommand) Run(s *session) error {
	script := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[c.Shell]
	_, err := fmt.Fprint(s.stdout, script)
	return err
}

// completeCommand lists completions.
type completeCommand struct {
	Words []string `arg:"" optional:"" help:"The words behind weft, up to the cursor."`
}

// Run implements the command.
func (c *completeCommand) Run(ctx context.Context, k *kong.Context, s *session) error {
	for _, x := range complete(k.Model.Node, joinWords(c.Words), &daemonCandidates{ctx: ctx}) {
		line := x.word
		if x.about != "" {
			line += "\t" + x.about
		}
		if _, err := fmt.Fprintln(s.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// joinWords puts together what bash takes apart at colons and equals signs: "--floor", "=", "0.9" is a flag and its value.
func joinWords(words []string) []string {
	var joined []string
	for i := 0; i < len(words); i++ {
		switch last := len(joined) - 1; {
		case words[i] == "=" && last >= 0 && strings.HasPrefix(joined[last], "--"):
			if i == len(words)-1 {
				joined = append(joined, "")
			}
		case words[i] == ":" && last >= 0:
			joined[last] += ":"
			if i+1 < len(words) {
				i++
				joined[last] += words[i]
			}
		default:
			joined = append(joined, words[i])
		}
	}
	return joined
}

// candidate is one completion.
type candidate struct{ word, about string }

// source knows the candidates that are not in the command line's own description.
type source interface {
	// candidates lists those of a kind ("jobs", "gpus", ...), given the state folder that the line names.
	candidates(kind, state string) []candidate
}

// line is a command line as far as it is typed.
type typedLine struct {
	node       *kong.Node
	positional int // arguments so far
	state      string
	flag       *kong.Flag // whose value comes next; nil for none
	passed     bool       // it is a program's from here on
	words      int        // of the program so far
}

// complete lists what the last word may become.
func complete(root *kong.Node, words []string, from source) []candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	l := &typedLine{node: root}
	for _, word := range words[:len(words)-1] {
		l.take(word)
	}
	var list []candidate
	name, value, hasValue := strings.Cut(last, "=")
	switch {
	case l.passed && l.words == 0:
		return []candidate{{":commands", ""}}
	case l.passed:
		return []candidate{{":files", ""}}
	case l.flag != nil:
		return begins(l.values(l.flag.Value, from), last, "")
	case hasValue && strings.HasPrefix(last, "--"):
		if f := l.flagNamed(name); f != nil {
			return begins(l.values(f.Value, from), value, name+"=")
		}
		return nil
	case strings.HasPrefix(last, "-"):
		list = l.flags()
	default:
		list = l.commands()
		if p := l.next(); p != nil {
			list = append(list, l.values(p, from)...)
		}
	}
	return begins(list, last, "")
}

// begins is the candidates that begin with a prefix, with something before them. Questions to the shell stay.
func begins(list []candidate, prefix, before string) []candidate {
	var kept []candidate
	for _, x := range list {
		switch {
		case strings.HasPrefix(x.word, ":"):
			kept = append(kept, x)
		case strings.HasPrefix(x.word, prefix):
			kept = append(kept, candidate{before + x.word, x.about})
		}
	}
	return kept
}

// take goes over one word.
func (l *typedLine) take(word string) {
	switch {
	case l.passed:
		l.words++
	case l.flag != nil:
		if l.flag.Name == "state" {
			l.state = word
		}
		l.flag = nil
	case word == "--":
		l.passed = true
	case strings.HasPrefix(word, "-") && len(word) > 1:
		name, value, hasValue := strings.Cut(word, "=")
		if f := l.flagNamed(name); f != nil && !f.IsBool() {
			if !hasValue {
				l.flag = f
			} else if f.Name == "state" {
				l.state = value
			}
		}
	default:
		for _, child := range l.node.Children {
			if child.Name == word {
				l.node = child
				return
			}
		}
		if p := l.next(); p != nil && p.Passthrough {
			l.passed, l.words = true, 1
		}
		l.positional++
	}
}

// next is the argument that comes next; nil where none is known.
func (l *typedLine) next() *kong.Value {
	list := l.node.Positional
	if l.positional < len(list) {
		return list[l.positional]
	}
	if n := len(list); n > 0 && list[n-1].IsSlice() {
		return list[n-1]
	}
	return nil
}

func (l *typedLine) flagNamed(name string) *kong.Flag {
	for node := l.node; node != nil; node = node.Parent {
		for _, f := range node.Flags {
			if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// flags are the flags of the command, then those of all commands.
func (l *typedLine) flags() []candidate {
	var list []candidate
	for node := l.node; node != nil; node = node.Parent {
		for _, f := range node.Flags {
			if !f.Hidden {
				list = append(list, candidate{"--" + f.Name, sentence(f.Help)})
			}
		}
	}
	return list
}

func (l *typedLine) commands() []candidate {
	var list []candidate
	if l.positional > 0 {
		return nil
	}
	for _, child := range l.node.Children {
		if !child.Hidden {
			list = append(list, candidate{child.Name, sentence(child.Help)})
		}
	}
	return list
}

// sentence is the first sentence of a help text.
func sentence(help string) string {
	first, _, _ := strings.Cut(help, "\n")
	first, _, _ = strings.Cut(first, ". ")
	return strings.TrimSuffix(first, ".")
}

// values are what a flag or an argument may be. A field says what it is in the tag complete.
func (l *typedLine) values(v *kong.Value, from source) []candidate {
	if v.Passthrough {
		return []candidate{{":commands", ""}}
	}
	if v.Enum != "" {
		var list []candidate
		for word := range strings.SplitSeq(v.Enum, ",") {
			if word != "" {
				list = append(list, candidate{word, ""})
			}
		}
		return list
	}
	kind := v.Tag.Get("complete")
	if kind == "" && (v.Tag.Type == "path" || v.Tag.Type == "existingfile") {
		kind = ":files"
	}
	switch {
	case kind == "":
		return nil
	case strings.HasPrefix(kind, ":"):
		return []candidate{{kind, ""}}
	}
	return from.candidates(kind, l.state)
}
