package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version names the module's version and the commit it was built from, as far as the build recorded them.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "weft, of an unknown build"
	}
	text := "weft " + info.Main.Version
	if info.Main.Version == "" {
		text = "weft (devel)"
	}
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			text += " " + setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			text += " (modified)"
		}
	}
	return fmt.Sprintf("%s %s %s/%s", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
