// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/compare"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestTwoCapturesOfAHealthyNodeDoNotDiffer: what changes by itself between two captures is no difference: counters,
// the order of the rules of Services, that of endpoints with their probabilities, comments, states of neighbours, the
// time.
func TestTwoCapturesOfAHealthyNodeDoNotDiffer(t *testing.T) {
	for _, x := range []struct{ dir, node string }{
		{"snapshots/iptables", "node1"},
		{"snapshots/iptables-legacy", "node1"},
		{"snapshots/nftables", "node1"},
		{"snapshots/ipvs", "node1"},
		{"snapshots/real-2node-iptables", "node1"},
		{"snapshots/real-2node-nftables", "node1"},
		{"snapshots/v1.31-nftables", "node3"},
		{"faults/iptables-neighbours/healthy", "node1"},
	} {
		t.Run(x.dir, func(t *testing.T) {
			t.Parallel()
			was := open(t, x.dir, x.node)
			now := *was
			now.files = map[string][]byte{}
			changed := 0
			for name, data := range was.files {
				text := string(data)
				switch {
				case strings.HasSuffix(name, "-save.txt") && name != snapshot.IPSetFile:
					text = anotherSync(text)
				case name == snapshot.NFTFile:
					text = anotherChoice(text)
				case name == snapshot.ConntrackFile:
					continue
				case name == snapshot.NeighbourFile:
					text = strings.ReplaceAll(text, "STALE", "REACHABLE")
				}
				if text != string(data) {
					changed++
				}
				now.files[name] = []byte(text)
			}
			if changed == 0 {
				t.Error("nothing was changed")
			}
			d := compare.Captures(was.facts(t, all), now.facts(t, all))
			if got := lines(&d); len(got) > 0 {
				t.Errorf("%d differences:\n%s", len(got), strings.Join(got, "\n"))
			}
		})
	}
}

var (
	counters = regexp.MustCompile(`(?m)^(:\S+ \S+ )?\[\d+:\d+\]`)
	endpoint = regexp.MustCompile(`-A (KUBE-SV[CL]-\S+) .*-j (KUBE-SEP-\S+)`)
	random   = regexp.MustCompile(` -m statistic --mode random --probability \S+`)
)

// anotherSync is what a save command prints after kube-proxy has written everything anew: the rules of Services in
// another order, the endpoints of each in the reverse order, without comments.
func anotherSync(text string) string {
	text = counters.ReplaceAllString(text, "${1}[7:700]")
	all := strings.Split(text, "\n")
	r := rand.New(rand.NewPCG(1, 2))
	shuffle := func(is func(string) bool, reverse bool) {
		var at []int
		var values []string
		for i, line := range all {
			if is(line) {
				at, values = append(at, i), append(values, line)
			}
		}
		if reverse {
			slices.Reverse(values)
		} else {
			r.Shuffle(len(values), func(i, k int) { values[i], values[k] = values[k], values[i] })
		}
		for i, line := range values {
			if reverse {
				line = random.ReplaceAllString(line, "")
				if left := len(values) - i; left > 1 {
					p := fmt.Sprintf(" -m statistic --mode random --probability %.11f -j KUBE-SEP-", 1/float64(left))
					line = strings.Replace(line, " -j KUBE-SEP-", p, 1)
				}
			}
			all[at[i]] = line
		}
	}
	for table := range []int{0, 1} {
		_ = table
		shuffle(func(s string) bool {
			return strings.Contains(s, "-A KUBE-SERVICES -d ") && strings.Contains(s, "-j KUBE-S")
		}, false)
	}
	chains := map[string]bool{}
	for _, line := range all {
		if m := endpoint.FindStringSubmatch(line); m != nil {
			chains[m[1]] = true
		}
	}
	for chain := range chains {
		shuffle(func(s string) bool {
			m := endpoint.FindStringSubmatch(s)
			return len(m) > 1 && m[1] == chain && !strings.Contains(s, "--rcheck")
		}, true)
	}
	return strings.Join(all, "\n")
}

var twoChoices = regexp.MustCompile(`\[0, (\{"(?:goto|concat)":[^\[\]]*(?:\[[^\[\]]*\])?\}+)\], \[1, (\{"(?:goto|concat)":[^\[\]]*(?:\[[^\[\]]*\])?\}+)\]`)

// anotherChoice exchanges the first two endpoints of each choice of nftables.
func anotherChoice(text string) string {
	text = strings.ReplaceAll(text, `"packets": 0`, `"packets": 9`)
	return twoChoices.ReplaceAllString(text, `[0, $2], [1, $1]`)
}
