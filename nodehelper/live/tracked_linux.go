// SPDX-License-Identifier: Apache-2.0

package live

import (
	"os"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Tracked reads the counters of connection tracking since the node's start; nil where there are none.
func Tracked() *snapshot.Tracked {
	data, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
	if err != nil {
		return nil
	}
	return countersOf(string(data))
}

// countersOf adds up the lines of the processors, whose columns the first line names (ct_cpu_seq_show in
// net/netfilter/nf_conntrack_standalone.c); nil for a text that lacks one.
func countersOf(text string) *snapshot.Tracked {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	t := &snapshot.Tracked{}
	fields := map[string]*uint64{"invalid": &t.Invalid, "insert_failed": &t.InsertFailed, "drop": &t.Drop}
	found := 0
	for column, name := range strings.Fields(lines[0]) {
		to := fields[name]
		if to == nil {
			continue
		}
		found++
		for _, line := range lines[1:] {
			words := strings.Fields(line)
			if column >= len(words) {
				return nil
			}
			n, err := strconv.ParseUint(words[column], 16, 64)
			if err != nil {
				return nil
			}
			*to += n
		}
	}
	if found < len(fields) {
		return nil
	}
	return t
}
