package lint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestDocuments(t *testing.T) {
	texts, exists := map[string]string{}, map[string]bool{}
	for _, name := range files(t) {
		exists[name] = true
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			exists[dir] = true
		}
		if path.Ext(name) == ".md" {
			texts[name] = read(t, name)
		}
	}
	if len(texts) == 0 {
		t.Fatal("found no Markdown file")
	}
	for name := range texts {
		report(t, checkLinks(name, texts, exists))
	}
	report(t, checkListed(texts))
}

// link is "](target)" or "](target "title")"; address is a target elsewhere.
var (
	link    = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)`)
	address = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
)

// checkLinks finds links of a document to files, folders and headings that are not there. texts are the documents by
// name; exists holds every file and folder.
func checkLinks(name string, texts map[string]string, exists map[string]bool) []string {
	var faults []string
	for _, target := range targets(name, texts[name]) {
		file, anchor, _ := strings.Cut(target, "#")
		text, isDocument := texts[file]
		switch {
		case !exists[file]:
			faults = append(faults, fmt.Sprintf("%s links to %s, which is not there", name, target))
		case anchor != "" && isDocument && !anchors(text)[anchor]:
			faults = append(faults, fmt.Sprintf("%s links to %s: no such heading", name, target))
		}
	}
	return faults
}

// checkListed finds documents that a reader does not come to. Who lists a document below the root is the README.md beside it or,
// where there is none, any other document.
func checkListed(texts map[string]string) []string {
	links := map[string][]string{} // who links to a file
	for name, text := range texts {
		for _, target := range targets(name, text) {
			file, _, _ := strings.Cut(target, "#")
			links[file] = append(links[file], name)
		}
	}
	var faults []string
	for name := range texts {
		index := path.Join(path.Dir(name), "README.md")
		if name == index || path.Dir(name) == "." {
			continue
		}
		if _, has := texts[index]; has && !slices.Contains(links[name], index) {
			faults = append(faults, fmt.Sprintf("%s does not list %s", index, name))
		} else if !slices.ContainsFunc(links[name], func(by string) bool { return by != name }) {
			faults = append(faults, fmt.Sprintf("no document links to %s", name))
		}
	}
	slices.Sort(faults)
	return faults
}

// targets are the files of the project that a document links to, from the root, with the heading behind a # where one is named.
func targets(name, text string) []string {
	var list []string
	for _, m := range link.FindAllStringSubmatch(prose(text), -1) {
		if address.MatchString(m[1]) {
			continue
		}
		file, anchor, _ := strings.Cut(m[1], "#")
		if file = path.Join(path.Dir(name), file); strings.HasPrefix(m[1], "#") {
			file = name
		}
		if anchor != "" {
			file += "#" + anchor
		}
		list = append(list, file)
	}
	return list
}

// code is `text between backticks`.
var code = regexp.MustCompile("`[^`\n]*`")

// prose is a document without its code.
func prose(text string) string {
	var kept strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			kept.WriteString(code.ReplaceAllString(line, "``"))
		}
	}
	return kept.String()
}

// heading is a line such as "## What it is".
var heading = regexp.MustCompile(`(?m)^#{1,6}\s+(.*?)\s*#*$`)

// anchors are the names under which a document's headings can be linked to: lower case, spaces as hyphens, other
// punctuation dropped, and a number on what is repeated.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	count := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		if n := count[name]; n > 0 {
			names[fmt.Sprintf("%s-%d", name, n)] = true
		} else {
			names[name] = true
		}
		count[name]++
	}
	return names
}

// fences are blocks of code, where a line may begin with # as well.
var fences = regexp.MustCompile("(?ms)^```.*?\n```")

func TestDocumentsFindsFaults(t *testing.T) {
	texts := map[string]string{
		"README.md": "[a](docs/a.md) [b](docs/a.md#the-plan-c1) [c](docs/b.md) [d](docs/a.md#none) [e](#top)\n" +
			"[f](docs) [g](mailto:x) `[h](docs/b.md)` [i](docs/a.md \"title\") [j](#nowhere)\n```\n[k](docs/b.md)\n# no heading\n```\n# Top\n",
		"docs/a.md": "# The `plan`: C1\n## Twice\n## Twice\n[up](../README.md#top) [twice](#twice-1) [thrice](#twice-2) [no](#no-heading)\n",
	}
	exists := map[string]bool{"README.md": true, "docs": true, "docs/a.md": true}
	expect(t, checkLinks("README.md", texts, exists), "docs/b.md, which is not there", "docs/a.md#none", "#nowhere")
	expect(t, checkLinks("docs/a.md", texts, exists), "#twice-2", "#no-heading")

	expect(t, checkListed(map[string]string{
		"README.md": "[a](docs/a.md#top)", "CHANGELOG.md": "", "docs/a.md": "[a](a.md) [c](more/c.md)", "docs/b.md": "[b](b.md)",
		"docs/more/README.md": "[d](d.md)", "docs/more/c.md": "", "docs/more/d.md": "",
	}), "docs/more/README.md does not list docs/more/c.md", "no document links to docs/b.md")
}
