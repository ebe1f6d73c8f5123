// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// -m time holds by the clock of the node when it was read (time_mt of net/netfilter/xt_time.c).
func TestTime(t *testing.T) {
	const noon = "2026-11-22T12:00:00.9Z\ntz_minuteswest=-330\n" // a Sunday, and 17:30 in the kernel's time zone
	for _, tt := range []struct{ rule, clock, want string }{
		{"-m time --datestart 2026-11-22T12:00:00 --datestop 2038-01-19T03:14:07", noon, "matches"},
		{"-m time --datestart 2026-11-22T12:00:01", noon, "no"},
		{"-m time --datestop 2026-11-22T12:00:00", noon, "matches"}, // the whole second is in it
		{"-m time --datestop 2026-11-22T11:59:59", noon, "no"},
		{"-m time --datestop 2026", noon, "no"},
		{"-m time --datestart 2026-11 --datestop 2026-11-22T13", noon, "matches"},
		{"-m time --datestop 2026-11-22T12:00", "2026-11-22T14:00:00+02:00", "matches"},
		{"-m time", "2038-01-19T03:14:08Z", "no"}, // the default of --datestop
		{"-m time --timestart 12:00:00 --timestop 12:00:00", noon, "matches"},
		{"-m time --timestart 11:00:00 --timestop 12:00:00", noon, "matches"},
		{"-m time --timestart 11:00:00 --timestop 11:59:59", noon, "no"},
		{"-m time --timestart 23:00:00 --timestop 01:00:00", noon, "no"},
		{"-m time --timestart 23:00:00 --timestop 12:00:00", noon, "matches"},
		{"-m time --timestart 12:00:00 --timestop 11:00:00", noon, "matches"},
		{"-m time --weekdays Sun", noon, "matches"},
		{"-m time --weekdays 1,2,3,4,5,6", noon, "no"},
		{"-m time ! --weekdays Sun", noon, "no"},
		{"-m time --monthdays 1,22", noon, "matches"},
		{"-m time ! --monthdays 22", noon, "no"},
		{"-m time --timestart 23:00 --timestop 13:00 --weekdays Sat", noon, "no"},
		{"-m time --timestart 23:00 --timestop 13:00 --weekdays Sat --contiguous", noon, "matches"},
		{"-m time --timestart 11:00 --timestop 13:00 --weekdays Sat --contiguous", noon, "no"}, // it began today
		{"-m time --timestart 12:00 --timestop 11:00 --weekdays Sat --contiguous", noon, "no"},
		{"-m time --timestart 23:00 --timestop 13:00 --monthdays 31 --contiguous", "2026-11-01T12:00:00Z", "matches"},
		{"-m time --timestart 17:30 --timestop 17:31 --kerneltz", noon, "matches"},
		{"-m time --timestart 12:00 --timestop 12:01 --kerneltz", noon, "no"},
		{"-m time --datestop 2026-11-22T17:30:00 --kerneltz", noon, "matches"},
		{"-m time --weekdays Mon --kerneltz", "2026-11-22T20:00:00Z\ntz_minuteswest=-330\n", "matches"},
		{"-m time --timestart 17:30 --timestop 17:31 --kerneltz", "2026-11-22T12:00:00Z", "unknown"},
		{"-m time --datestop 2026-11-22T12:00:00", "", "unknown"},
		{"-m time --datestop 2026-11-22T25:00:00", noon, "unknown"},
		{"-m time ! --datestop 2026-11-22T12:00:00", noon, "unknown"},
		{"-m time --weekdays Sun --weekdays Mon", noon, "unknown"},
		{"-m time --weekdays 0", noon, "unknown"},
		{"-m time --monthdays 32", noon, "unknown"},
		{"-m time --timestart 24:00", noon, "unknown"},
		{"-m time --someday 1", noon, "unknown"},
	} {
		c := testContext(t)
		files := host.Files{}
		if tt.clock != "" {
			files.Time = []byte(tt.clock + "\n")
		}
		n, errs := host.Parse(files)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		c.Host = n
		if got := answer(t, c, tt.rule); got != tt.want {
			t.Errorf("%s at %q: got %s, want %s", tt.rule, tt.clock, got, tt.want)
		}
	}
}
