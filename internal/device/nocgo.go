//go:build !cgo

package device

import "fmt"

// Open would load the management library.
func Open(string) (Machine, error) {
	return nil, fmt.Errorf("%w: this weft was built without cgo and cannot load a driver; build it with CGO_ENABLED=1", ErrNone)
}
