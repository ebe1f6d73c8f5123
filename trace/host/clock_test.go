// SPDX-License-Identifier: Apache-2.0

package host

import (
	"strings"
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 5e6, time.UTC)
	for text, want := range map[string]Clock{
		"2026-11-22T12:00:00.005Z\n":                           {Now: at},
		"2026-11-22T14:00:00.005+02:00\ntz_minuteswest=-120\n": {Now: at, Zone: -120, ZoneKnown: true},
		"2026-11-22T12:00:00.005Z\r\ntz_minuteswest=0\r\n":     {Now: at, ZoneKnown: true},
	} {
		n, errs := Parse(Files{Time: []byte(text)})
		got := n.Clock()
		if len(errs) > 0 || !got.Now.Equal(want.Now) || got.Zone != want.Zone || got.ZoneKnown != want.ZoneKnown {
			t.Errorf("%q: %+v %v", text, got, errs)
		}
		again, errs := Parse(Files{Time: FormatClock(got)})
		if c := again.Clock(); len(errs) > 0 || !c.Now.Equal(got.Now) || c.Zone != got.Zone || c.ZoneKnown != got.ZoneKnown {
			t.Errorf("%q becomes %q: %v", text, FormatClock(got), errs)
		}
	}
	for text, want := range map[string]string{
		"": "empty", "now\n": `"now" is not a time`, "2026-11-22 12:00:00": "is not a time",
		"2026-11-22T12:00:00Z\ntz_minuteswest=-12":      "cut off in line 2",
		"2026-11-22T12:00:00Z\nUTC\n":                   `"UTC" is not a tz_minuteswest=MINUTES`,
		"2026-11-22T12:00:00Z\ntz_minuteswest=901\n":    "from -900 to 900",
		"2026-11-22T12:00:00Z\ntz_minuteswest=0\nx=1\n": "3 lines",
	} {
		n, errs := Parse(Files{Time: []byte(text)})
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "time.txt: ") || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%q: %v", text, errs)
		}
		if !n.Clock().Now.IsZero() {
			t.Errorf("%q: %+v", text, n.Clock())
		}
	}
}
