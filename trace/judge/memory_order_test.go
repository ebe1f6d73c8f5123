// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"regexp"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// ofWhat is the part of a line that names its chain, or set.
var ofWhat = regexp.MustCompile(`(-A|add) \S+ `)

// reorder brings the rules of the chain of a line, or the elements of its set, into another order.
func (w *changingNode) reorder(lines []string, at int) {
	of := ofWhat.FindString(lines[at])
	if of == "" {
		return
	}
	same := func(i int) bool { return ofWhat.FindString(lines[i]) == of }
	first, end := at, at+1
	for first > 0 && same(first-1) {
		first--
	}
	for end < len(lines) && same(end) {
		end++
	}
	w.Shuffle(end-first, func(i, k int) { lines[first+i], lines[first+k] = lines[first+k], lines[first+i] })
}

// kube-proxy writes KUBE-SERVICES anew at each sync, with the rules of Services in any order: nothing is judged again
// for that.
func TestServicesInAnotherOrder(t *testing.T) {
	for name, file := range map[string]string{
		"iptables": snapshot.IPTablesNFTFile, "iptables-legacy": snapshot.IPTablesLegacyFile,
	} {
		t.Run(name, func(t *testing.T) {
			w := newChanging(t, name, "node1", 1)
			memory := &Memory{}
			judge := func() {
				objects, files := w.now()
				Files(objects, files, Request{Backwards: true, PerPathService: true, Memory: memory})
			}
			judge()
			judge()
			all := memory.Reused
			if len(w.files[file]) == 0 {
				file = snapshot.IPTablesFile
			}
			lines := strings.SplitAfter(string(w.files[file]), "\n")
			moved := 0
			for i := 1; i < len(lines); i++ {
				before, after := lines[i-1], lines[i]
				if isOfAService(before) && isOfAService(after) {
					lines[i-1], lines[i] = after, before
					moved++
				}
			}
			w.files[file] = []byte(strings.Join(lines, ""))
			judge()
			if moved < 10 || all == 0 || memory.Reused != all {
				t.Errorf("%d rules in another place: %d paths of %d are taken over", moved, memory.Reused, all)
			}
		})
	}
}

// isOfAService tells whether a line is a rule for an address and a port that jumps to the chain of a Service.
func isOfAService(line string) bool {
	return strings.Contains(line, "-A KUBE-SERVICES -d ") && strings.Contains(line, " --dport ")
}
