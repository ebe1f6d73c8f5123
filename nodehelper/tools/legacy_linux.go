// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
)

// HasLegacyTables tells whether somebody has made a table of iptables-legacy, or ip6tables-legacy, in this thread's
// network namespace: to ask the program for one makes it.
func HasLegacyTables(v6 bool) (bool, error) {
	name := "ip_tables_names"
	if v6 {
		name = "ip6_tables_names"
	}
	data, err := os.ReadFile("/proc/thread-self/net/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return len(bytes.TrimSpace(data)) > 0, err
}
