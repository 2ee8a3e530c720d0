package shepherd

import "runtime/debug"

// slim gives back the memory that only the start took.
func slim() {
	debug.SetGCPercent(20)
	debug.FreeOSMemory()
}
