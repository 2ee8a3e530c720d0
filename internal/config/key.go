package config

import (
	"fmt"
	"math"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/unit"
)

// fault is what is wrong with one value, before its place is known.
type fault struct{ message, why, fix string }

// key is one setting with a plain value.
type key struct {
	name string
	set  func(c *Config, value string) *fault
	get  func(c *Config) string
}

// variable is the key's name in the environment.
func (k *key) variable() string { return "WEFT_" + strings.ToUpper(k.name) }

// keys are the settings with plain values, in the order in which they are shown.
var keys = []key{
	{"listen", setListen, func(c *Config) string { return c.Listen }},
	{"state", setState, func(c *Config) string { return c.State }},
	{"floor", setFloor, func(c *Config) string { return strconv.FormatFloat(c.Floor, 'g', -1, 64) }},
	{"class", setClass, func(c *Config) string { return c.Class.String() }},
	{"priority", setPriority, func(c *Config) string { return strconv.Itoa(c.Priority) }},
	{"log_limit", setLogLimit, func(c *Config) string { return c.LogLimit.String() }},
}

// Names of the settings that only the machine's file has.
const (
	administratorsKey = "administrators"
	usersKey          = "users"
)

// Keys is the name of every setting.
func Keys() []string {
	names := make([]string, 0, len(keys)+2)
	for i := range keys {
		names = append(names, keys[i].name)
	}
	return append(names, administratorsKey, usersKey)
}

func keyNamed(name string) *key {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

func setListen(c *Config, value string) *fault {
	if value == NoListen {
		c.Listen = value
		return nil
	}
	host, port, err := net.SplitHostPort(value)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || strings.ContainsAny(host, " /") {
		return &fault{fmt.Sprintf("listen %q is no address", value), "it is a host and a port, or none", standardListen}
	}
	c.Listen = value
	return nil
}

func setState(c *Config, value string) *fault {
	if value != "" && !filepath.IsAbs(value) {
		return &fault{fmt.Sprintf("state %q is not absolute", value), "daemon and commands start in different folders", "write it from / on"}
	}
	c.State = value
	return nil
}

// ParseFloor reads a floor. The texts are what is wrong with one that is none: the fault, why, and what to write.
func ParseFloor(value string) (floor float64, message, why, fix string) {
	text, percent := strings.CutSuffix(strings.TrimSpace(value), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	message = fmt.Sprintf("floor %s is outside (0, 1]", value)
	const meaning = "a floor is a share of standalone speed"
	switch {
	case err != nil || math.IsNaN(v):
		return 0, fmt.Sprintf("floor %q is no number", value), meaning, "0.9 for 90 %"
	case (percent || v > 1.5) && v > 0 && v <= 100:
		return 0, message, meaning, strconv.FormatFloat(math.Round(v*1e4)/1e6, 'g', -1, 64)
	case percent || v > 1:
		return 0, message, meaning, "0.9 for 90 %"
	case v <= 0:
		return 0, message, meaning, "a small one, such as 0.05, with --class besteffort"
	}
	return v, "", "", ""
}

func setFloor(c *Config, value string) *fault {
	floor, message, why, fix := ParseFloor(value)
	if message != "" {
		return &fault{message, why, fix}
	}
	c.Floor = floor
	return nil
}

func setClass(c *Config, value string) *fault {
	var class box.Class
	if err := class.UnmarshalText([]byte(value)); err != nil || value == "" {
		return &fault{fmt.Sprintf("unknown class %q", value), "", "guaranteed, burstable or besteffort"}
	}
	c.Class = class
	return nil
}

// MostPriority is the highest priority; 0 is the lowest.
const MostPriority = 100

func setPriority(c *Config, value string) *fault {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > MostPriority {
		return &fault{fmt.Sprintf("priority %s is not 0 to %d", value, MostPriority), "higher ones go first", strconv.Itoa(standardPriority)}
	}
	c.Priority = n
	return nil
}

func setLogLimit(c *Config, value string) *fault {
	b, err := unit.ParseBytes(value)
	switch {
	case err != nil:
		return &fault{err.Error(), "", "1GiB"}
	case b < unit.MiB:
		return &fault{fmt.Sprintf("log_limit %s is below 1 MiB", value), "a number without a unit is bytes", "1GiB"}
	}
	c.LogLimit = b
	return nil
}
