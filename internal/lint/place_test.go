package lint

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// personal are paths that exist on one machine only. They are written in pieces so that this file does not hold them.
var personal = regexp.MustCompile(`(?:^|[^\w./-])/(?:` + strings.Join([]string{
	"ho" + `me/\w+`, "Us" + `ers/\w+`, "ro" + "ot/", "wo" + "rk/", "tm" + "p/tools",
}, "|") + `)`)

func TestNoMachinePaths(t *testing.T) {
	for _, name := range files(t) {
		report(t, checkPlaces(name, []byte(read(t, name))))
	}
}

// checkPlaces finds machine paths in a text file.
func checkPlaces(name string, text []byte) []string {
	if bytes.IndexByte(text, 0) >= 0 {
		return nil // not text
	}
	var faults []string
	for i, line := range bytes.Split(text, []byte("\n")) {
		if m := personal.Find(line); m != nil {
			faults = append(faults, fmt.Sprintf("%s:%d holds the machine path %q", name, i+1, m))
		}
	}
	return faults
}

func TestNoMachinePathsFindsFaults(t *testing.T) {
	text := "cd /ho" + "me/ann/weft\nfine: ./ho" + "me/x and docs/wo" + "rk/x\n\"/wo" + "rk/main\"\n/tm" + "p/tools/bin\n/tm" + "p/x\n"
	expect(t, checkPlaces("a.md", []byte(text)), "a.md:1", "a.md:3", "a.md:4")
	expect(t, checkPlaces("a.bin", []byte("\x00"+text)))
}
