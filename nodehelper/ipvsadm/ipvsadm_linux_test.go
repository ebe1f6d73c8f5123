// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"slices"
	"testing"

	"github.com/moby/ipvs"
)

// What it reads from a kernel is compared with ipvsadm-save in test/ipvs.
func TestSchedulerFlagsAreThoseOfIPVSAdm(t *testing.T) {
	for _, c := range []struct {
		scheduler string
		flags     uint32
		want      []string
	}{
		{"rr", 0x2, nil},
		{"rr", Persistent | onePacket | 0x2, nil},
		{"sh", 0x8, []string{"sh-fallback"}},
		{"sh", 0x18, []string{"sh-fallback", "sh-port"}},
		{"mh", 0x10, []string{"mh-port"}},
		{"mh", 0x38, []string{"mh-fallback", "mh-port", "flag-3"}},
		{"wlc", 0x28, []string{"flag-1", "flag-3"}},
	} {
		if got := flagsOf(&ipvs.Service{SchedName: c.scheduler, Flags: c.flags}); !slices.Equal(got, c.want) {
			t.Errorf("%s with flags %#x: got %v, want %v", c.scheduler, c.flags, got, c.want)
		}
	}
}
