// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// The number of questions, and the seed, unless the environment says otherwise.
const (
	casesVariable, defaultCases = "SVCPROXY_ROUTING_CASES", 2000
	seedVariable, defaultSeed   = "SVCPROXY_ROUTING_SEED", 1
)

const (
	questionsEach = 250 // about one set of rules and routes
	maxDifference = 10  // after so many the test stops
)

// TestRoutesAgainstTheKernel asks the kernel, and the project, for the routes of random packets, with random rules and
// routes. What the project says for certain must be what the kernel says, and little may be uncertain.
func TestRoutesAgainstTheKernel(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, "ip") {
		return
	}
	cases, seed := testutil.Count(t, casesVariable, defaultCases), testutil.Count(t, seedVariable, defaultSeed)
	links(t)
	k := newKernel(t)
	asked, unknown, differences := 0, 0, 0
	kinds := map[string]int{}
	for set := seed; asked < cases && differences < maxDifference; set++ {
		r := rand.New(rand.NewPCG(uint64(set), 0))
		w := worldOf(r, set%3 == 2)
		batch(t, w.family(), w.setUp())
		n := network(t)
		for range questionsEach {
			q := w.query()
			asked++
			l := n.Lookup(q)
			if !l.Known {
				unknown++
				kinds["unknown"]++
				continue
			}
			want := k.get(&q)
			kinds[string(want.typ)]++
			if what := differs(&l, want); what != "" {
				differences++
				t.Errorf(
					"seed %d: %+v:\n%s is another: %+v by %s\nthe kernel has %s\n%s",
					set,
					q,
					what,
					l.Route,
					l.By,
					want,
					state(t),
				)
				if differences >= maxDifference {
					break
				}
			}
		}
	}
	t.Logf("seeds from %d on: %d questions, %d differences; %v", seed, asked, differences, kinds)
	if unknown*20 > asked {
		t.Errorf("%d of %d are not known", unknown, asked)
	}
}

// links makes the interfaces, whose other ends lie in the same namespace.
func links(t *testing.T) {
	t.Helper()
	write := func(key, value string) {
		if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ipv4/ip_forward", "1")
	write("ipv6/conf/all/forwarding", "1")
	write("ipv4/conf/all/rp_filter", "0")
	write("ipv4/conf/default/rp_filter", "0")
	write("ipv4/conf/default/accept_local", "1")
	write("ipv6/conf/default/accept_dad", "0")
	v4, v6 := worldOf(nil, false), worldOf(nil, true)
	testutil.Run(t, "", "ip", "link", "set", "lo", "up")
	for i, name := range devs {
		far := fmt.Sprintf("far%d", i)
		testutil.Run(t, "", "ip", "link", "add", name, "type", "veth", "peer", "name", far)
		for _, words := range []string{
			"link set " + name + " up", "link set " + far + " up", "addr add " + v4.own[i] + "/24 dev " + name,
			"-6 addr add " + v6.own[i] + "/64 dev " + name + " nodad",
		} {
			testutil.Run(t, "", append([]string{"ip"}, strings.Fields(words)...)...)
		}
	}
	testutil.Run(t, "", "ip", "link", "set", "eth1", "group", "7")
}

// state lists rules and routes, for a difference.
func state(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, words := range []string{"-4 rule", "-4 route show table all", "-6 rule", "-6 route show table all"} {
		for line := range strings.Lines(testutil.Run(t, "", append([]string{"ip"}, strings.Fields(words)...)...)) {
			if !strings.Contains(line, "proto kernel") {
				out.WriteString("  " + line)
			}
		}
	}
	return out.String()
}
