package shepherd

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// leastGC keeps the heap of a shepherd near what it holds, which is next to nothing.
const leastGC = 20

// slim gives back the memory that only the start took: of the heap, and of the pages of this program that the packages for
// its other commands touched. Those are clean copies of its file: what is still needed is mapped again at its next use.
func slim() {
	debug.SetGCPercent(leastGC)
	debug.FreeOSMemory()
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return // it stays as large as it is
	}
	defer func() { _ = maps.Close() }() // only read from
	for _, m := range clean(maps) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED) // it is advice
	}
}

// mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// clean are the mappings of files that were never written to, also not by the loader, and never will be.
func clean(smaps io.Reader) []mapping {
	var list []mapping
	var last mapping
	var fixed bool
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		var m mapping
		var mode string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &m.from, &m.to, &mode); n == 3 {
			last, fixed = m, strings.Contains(lines.Text(), " /") && !strings.Contains(mode, "w")
		}
		if fields := strings.Fields(lines.Text()); fixed && len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] == "0" {
			list = append(list, last)
		}
	}
	return list
}
