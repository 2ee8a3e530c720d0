package trace

import (
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	"weft.dev/weft/internal/cluster"
)

// ModelMap names the model of jobs whose log names none, from what their user called them. It counts its matches and
// is not safe for concurrent use.
type ModelMap struct {
	file    string
	rules   []modelRule
	known   map[string]int // rule of a name, -1 for none
	matched int
	missed  int
}

type modelRule struct {
	pattern               string
	line                  int
	match                 func(name string) bool
	model, batch, profile string
	used                  int
}

// ReadModelMap reads a CSV with the columns pattern and model, and optionally batch and profile. A pattern is a glob
// over the whole name as of path.Match, or "re:" and a regular expression that matches anywhere in it. The first
// pattern in file order that matches wins. A pattern that does not parse is an error with its line.
func ReadModelMap(file string, r io.Reader) (*ModelMap, error) {
	in, err := open(file, r)
	if err != nil {
		return nil, err
	}
	required := []string{"pattern", "model"}
	t, err := NewTable(file, in, Columns{Required: required, Optional: []string{"batch", "profile"}})
	if err != nil {
		return nil, err
	}
	m := &ModelMap{file: file, known: map[string]int{}}
	for t.Next() {
		cellsFilled(t, required)
		rule := modelRule{pattern: strings.Clone(t.Text("pattern")), line: t.line, model: strings.Clone(t.Text("model")),
			batch: strings.Clone(t.Text("batch")), profile: strings.Clone(t.Text("profile"))}
		if rule.match, err = compile(rule.pattern); err != nil {
			t.Fault("pattern", "bad_pattern", clean(err.Error()), "", "write a glob such as bert-*, or re: and a regular expression")
		}
		m.rules = append(m.rules, rule)
	}
	if err := t.Err(); err != nil {
		return nil, err
	}
	return m, nil
}

func compile(pattern string) (func(string) bool, error) {
	if expression, ok := strings.CutPrefix(pattern, "re:"); ok {
		re, err := regexp.Compile(expression)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		return re.MatchString, nil
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	return func(name string) bool {
		ok, _ := path.Match(pattern, name) // cannot fail: the pattern was checked
		return ok
	}, nil
}

// Apply fills model, batch and memory profile of the jobs without a model whose name, or id if it has none, matches, and says how many
// matched. A nil map names none.
func (m *ModelMap) Apply(jobs []cluster.Job) (notes []string) {
	for i := range jobs {
		m.apply(&jobs[i])
	}
	return m.notes()
}

// apply fills model, batch and memory profile of a job without a model whose name, or id if it has none, matches. It
// takes time linear in the number of patterns for each new name.
func (m *ModelMap) apply(j *cluster.Job) {
	if m == nil || j.Model != "" {
		return
	}
	name := j.Name
	if name == "" {
		name = j.ID
	}
	at := m.find(name)
	if at < 0 {
		m.missed++
		return
	}
	m.matched++
	rule := &m.rules[at]
	rule.used++
	j.Model, j.Batch = rule.model, rule.batch
	if j.Memory.Profile == "" {
		j.Memory.Profile = rule.profile
	}
}

func (m *ModelMap) find(name string) int {
	if at, ok := m.known[name]; ok {
		return at
	}
	at := -1
	for i := range m.rules {
		if m.rules[i].match(name) {
			at = i
			break
		}
	}
	if len(m.known) < maxNames {
		m.known[strings.Clone(name)] = at
	}
	return at
}

// notes says how many jobs matched and which patterns matched none.
func (m *ModelMap) notes() []string {
	if m == nil {
		return nil
	}
	notes := []string{fmt.Sprintf("%s: %d of %d jobs without a model matched a pattern", m.file, m.matched, m.matched+m.missed)}
	var unused []string
	for _, r := range m.rules {
		if r.used == 0 && len(unused) < maxErrors {
			unused = append(unused, fmt.Sprintf("%s (line %d)", clean(r.pattern), r.line))
		}
	}
	if len(unused) > 0 {
		notes = append(notes, m.file+": patterns that matched no job: "+strings.Join(unused, ", "))
	}
	return notes
}
