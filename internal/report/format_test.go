package report

import (
	"math"
	"regexp"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNumbers(t *testing.T) {
	const h, m, s, ms = time.Hour, time.Minute, time.Second, time.Millisecond
	for _, c := range []struct{ got, want string }{
		{Duration(0), "0 ms"}, {Duration(400 * time.Microsecond), "0 ms"}, {Duration(9 * ms), "9 ms"},
		{Duration(999 * ms), "999 ms"}, {Duration(999*ms + 600*time.Microsecond), "1s"}, {Duration(s), "1s"},
		{Duration(12 * s), "12s"}, {Duration(59*s + 600*ms), "1m00s"}, {Duration(105 * s), "1m45s"},
		{Duration(59*m + 59*s + 600*ms), "1h00m00s"}, {Duration(3*h + 13*m + 5*s), "3h13m05s"},
		{Duration(9*h + 59*m + 59*s + 700*ms), "10h00m"}, {Duration(14*h + 50*m + 31*s), "14h51m"},
		{Duration(99*h + 59*m + 31*s), "4d04h"}, {Duration(1370603 * s), "15d21h"}, {Duration(-105 * s), "-1m45s"},
		{Duration(math.MinInt64), "-106751d23h"}, {Duration(math.MaxInt64), "106751d23h"},
		{Elapsed(61 * ms), "61 ms"}, {Elapsed(1300 * ms), "1.3 s"}, {Elapsed(999*ms + 700*time.Microsecond), "1.0 s"},
		{Elapsed(59*s + 960*ms), "1m00s"}, {Elapsed(59*s + 900*ms), "59.9 s"}, {Elapsed(105 * s), "1m45s"},
		{Seconds(12), "12s"}, {Seconds(math.NaN()), "-"}, {Seconds(math.Inf(1)), "-"}, {Seconds(1e300), "106751d23h"},
		{Percent(0.944), "94 %"}, {Percent(1), "100 %"}, {Percent(0.9999), "99 %"}, {Percent(0), "0 %"},
		{Percent(0.0001), "0 %"}, {Percent(1.2), "120 %"}, {Percent(math.NaN()), "-"}, {Percent(math.Copysign(0, -1)), "0 %"},
		{PercentTenths(0.4807), "48.1 %"}, {PercentTenths(1), "100 %"}, {PercentTenths(0.99999), "99.9 %"},
		{PercentTenths(0.857), "85.7 %"}, {PercentTenths(0), "0.0 %"}, {PercentTenths(0.00001), "0.0 %"},
		{Change(0.97), "+97.0 %"}, {Change(0.0227), "+2.3 %"}, {Change(-0.07), "-7.0 %"}, {Change(-0.0001), "0.0 %"},
		{Change(0), "0.0 %"}, {Change(math.Inf(-1)), "-"},
		{Count(0), "0"}, {Count(999), "999"}, {Count(37589), "37,589"}, {Count(-1000), "-1,000"},
		{Count(math.MinInt64), "-9,223,372,036,854,775,808"},
		{Tenths(38.24), "38.2"}, {Tenths(1204.45), "1,204.5"}, {Tenths(-0.04), "0.0"}, {Tenths(-0.26), "-0.3"},
		{Tenths(math.NaN()), "-"}, {Tenths(1e16), "10,000 T"},
		{Amount(37589), "37,589"}, {Amount(999999.4), "999,999"}, {Amount(999999.6), "1.00 M"}, {Amount(1.62e6), "1.62 M"},
		{Amount(23.4e9), "23.4 G"}, {Amount(999.6e6), "1.00 G"}, {Amount(1e12), "1.00 T"}, {Amount(1e17), "100,000 T"},
		{Amount(1e40), "1e+28 T"}, {Amount(-1.62e6), "-1.62 M"}, {Amount(-0.2), "0"}, {Amount(math.NaN()), "-"},
		{Amount(99.96e6), "100 M"}, {Amount(9.996e6), "10.0 M"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// Every value has one of the documented shapes, whatever the input.
func TestNumbersHaveTheirShape(t *testing.T) {
	duration := regexp.MustCompile(`^-?(\d{1,3} ms|[1-5]?\ds|[1-5]?\dm[0-5]\ds|\dh[0-5]\dm[0-5]\ds|\d\dh[0-5]\dm|\d+d[0-2]\dh)$`)
	amount := regexp.MustCompile(`^-?(\d{1,3}(,\d{3})*|\d\.\d\d [MGT]|\d\d\.\d [MGT]|\d{3}(,\d{3})* [MGT]|[\d,]+ T|.*e\+\d+ T)$`)
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64().Draw(t, "d"))
		if got := Duration(d); !duration.MatchString(got) {
			t.Fatalf("Duration(%d) = %q", d, got)
		}
		v := rapid.Float64().Draw(t, "v")
		if got := Amount(v); !amount.MatchString(got) {
			t.Fatalf("Amount(%g) = %q", v, got)
		}
		share := rapid.Float64Range(0, 1).Draw(t, "share")
		if got := PercentTenths(share); (got == "100 %") != (share == 1) || len(got) > len("99.9 %") {
			t.Fatalf("PercentTenths(%g) = %q", share, got)
		}
	})
}
