package local

import (
	"fmt"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/unit"
)

// leastRoom is the room on the disk of the state folder below which it is said that jobs may be refused: the database grows by
// less at once.
const leastRoom = 4 * unit.MiB

// checkRoom says, or takes back, that the disk of the state folder is full.
func (b *Box) checkRoom() {
	var fs unix.Statfs_t
	if unix.Statfs(b.o.State, &fs) != nil {
		return // the next write says what is wrong
	}
	text := ""
	if room := unit.Bytes(fs.Bavail) * unit.Bytes(fs.Bsize); room < leastRoom {
		text = fmt.Sprintf("%v are left on the disk of %s: jobs may be refused, what runs goes on", room, b.o.State)
	}
	b.setDegraded("room", text)
}
