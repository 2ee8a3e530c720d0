// Package demo holds `weft demo` to what it is to show, as a user runs it: the built program, its processes, its files.
package demo

import (
	"os"
	"testing"

	"weft.dev/weft/test/suite"
)

var built suite.Built

func TestMain(m *testing.M) { os.Exit(suite.Main(m, &built)) }
