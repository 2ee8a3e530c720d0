package main

import (
	"os"
	"path/filepath"

	"weft.dev/weft/internal/trace"
)

// libraries is the folder of libweft.so and of what belongs to it: emu/libcuda.so.1, weft-train, weft-probe. It is what
// WEFT_LIB names, or lib beside the binary (as make build leaves it), or ../lib/weft (as a package installs it).
func libraries() (string, error) {
	folders := []string{os.Getenv("WEFT_LIB")}
	if folders[0] == "" {
		executable, err := os.Executable()
		if err != nil {
			return "", err
		}
		if executable, err = filepath.EvalSymlinks(executable); err != nil {
			return "", err
		}
		beside := filepath.Dir(executable)
		folders = []string{filepath.Join(beside, "lib"), filepath.Join(beside, "..", "lib", "weft")}
	}
	for _, folder := range folders {
		if _, err := os.Stat(filepath.Join(folder, "libweft.so")); err == nil {
			return filepath.Abs(folder)
		}
	}
	return "", trace.Errors{{Code: "no_library", File: filepath.Join(folders[0], "libweft.so"), Message: "libweft.so is not there",
		Why: "it is what stands before the driver in each job", Fix: "make build, or name its folder in WEFT_LIB"}}
}
