// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// virtual is a virtual server as ipvsadm-save prints it.
type virtual struct {
	protocol   string
	address    netip.AddrPort
	persistent bool
	reals      map[netip.AddrPort]bool // whether it has a weight
}

// virtuals lists the virtual servers of cluster IPs: those that everybody may ask.
func virtuals(t *testing.T) []*virtual {
	t.Helper()
	var out []*virtual
	for line := range strings.Lines(do(t, "ipvsadm-save -n")) {
		w := strings.Fields(line)
		at, err := netip.ParseAddrPort(w[2])
		protocol, known := map[string]string{"-t": "TCP", "-u": "UDP"}[w[1]]
		if err != nil || !known ||
			!strings.HasPrefix(at.String(), "10.96.") && !strings.HasPrefix(at.String(), "[fd00:10:96::") {
			continue
		}
		if w[0] == "-A" {
			out = append(out, &virtual{protocol, at, strings.Contains(line, " -p "), map[netip.AddrPort]bool{}})
			continue
		}
		out[len(out)-1].reals[netip.MustParseAddrPort(w[4])] = w[len(w)-1] != "0"
	}
	return out
}

// TestKernelSharesAsItsTableSays proves what the walk assumes: round robin gives each real server with a weight the
// same, nobody else anything; a persistent client stays; without a real server that has a weight, the client is
// refused.
func TestKernelSharesAsItsTableSays(t *testing.T) {
	listen(t)
	from := map[string]testutil.Thread{"node": threadAt(t, ""), "pod": threadAt(t, "client")}
	all := func(only string) (sent int) {
		for _, v := range virtuals(t) {
			if only != "" && v.address.String() != only {
				continue
			}
			for name, at := range from {
				sent++
				if problem := share(at, v); problem != "" {
					t.Errorf("%s %s from %s: %s; real servers %v", v.protocol, v.address, name, problem, v.reals)
				}
			}
		}
		return sent
	}
	if sent := all(""); sent < 80 {
		t.Errorf("only %d paths were asked", sent)
	}
	const of = "10.96.180.79:80"
	const ep3 = "-t " + of // the Service cases/ep3
	reals := []string{"10.244.2.20:8080", "10.244.1.19:8080", "10.244.3.21:8080"}
	defer func() {
		for _, r := range reals {
			do(t, "ipvsadm -e "+ep3+" -r "+r+" -m -w 1")
		}
	}()
	for _, r := range reals {
		do(t, "ipvsadm -e "+ep3+" -r "+r+" -m -w 0")
		if all(of) != 2 {
			t.Errorf("%s was not asked", of)
		}
	}
}

// share opens connections to a virtual server and returns what is not as it should be.
func share(at testutil.Thread, v *virtual) string {
	weighted := 0
	for _, has := range v.reals {
		if has {
			weighted++
		}
	}
	if weighted == 0 {
		if _, err := ask(at, v.protocol, netip.Addr{}, v.address, answerWait); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Sprintf("it is not refused: %v", err)
		}
		return ""
	}
	got := map[netip.AddrPort]int{}
	for range rounds * weighted {
		s, err := ask(at, v.protocol, netip.Addr{}, v.address, answerWait)
		if err != nil {
			return err.Error()
		}
		got[s.Server]++
	}
	if v.persistent {
		if len(got) != 1 {
			return fmt.Sprintf("one client came to %v", got)
		}
		return ""
	}
	for e, has := range v.reals {
		if want := map[bool]int{true: rounds}[has]; got[e] != want {
			return fmt.Sprintf("connections came to %v", got)
		}
	}
	return ""
}
