package dispatch

import "time"

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
