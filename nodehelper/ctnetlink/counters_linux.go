// SPDX-License-Identifier: Apache-2.0

package ctnetlink

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// statFile has connection tracking's counters of the thread's network namespace.
const statFile = "/proc/thread-self/net/stat/nf_conntrack"

// Counters are those of connection tracking since the start of the thread's network namespace, by the names that the
// kernel has for them. The error is fs.ErrNotExist where there is no connection tracking.
func Counters() (map[string]uint64, error) {
	data, err := os.ReadFile(statFile)
	if err != nil {
		return nil, err
	}
	return countersOf(string(data))
}

// countersOf adds up the lines of the processors, whose columns the first line names, and whose numbers are hexadecimal
// (ct_cpu_seq_show in net/netfilter/nf_conntrack_standalone.c).
func countersOf(text string) (map[string]uint64, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	names := strings.Fields(lines[0])
	out := make(map[string]uint64, len(names))
	for _, name := range names {
		out[name] = 0
	}
	for _, line := range lines[1:] {
		words := strings.Fields(line)
		if len(words) < len(names) {
			return nil, fmt.Errorf("%s: a line of %d numbers, where %d are named", statFile, len(words), len(names))
		}
		for i, name := range names {
			n, err := strconv.ParseUint(words[i], 16, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", statFile, err)
			}
			out[name] += n
		}
	}
	return out, nil
}
