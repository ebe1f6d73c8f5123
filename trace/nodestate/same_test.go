// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Two readings are the same although a program that was just being started had the sockets of the one that starts it,
// and although connections wait to be accepted; not where a path may be another one.
func TestSocketsThatMakeNoDifference(t *testing.T) {
	const before = `tcp LISTEN 0 4096 127.0.0.1:9469 0.0.0.0:* users:(("agent",pid=76,fd=5))
tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=9,fd=3))
udp UNCONN 0 0 0.0.0.0:68 0.0.0.0:*
`
	load := func(listen string) *State {
		t.Helper()
		s, err := LoadToCompare(snapshot.NewNode("n", map[string][]byte{snapshot.ListenFile: []byte(listen)}))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, tt := range []struct {
		name, old, now string
		same           bool
	}{
		{"nothing", "", "", true},
		{"a child before exec", `users:(("agent",pid=76,fd=5))`, `users:(("agent",pid=117,fd=5),("agent",pid=76,fd=5))`, true},
		{"started again", "pid=9,", "pid=4711,", true},
		{"connections wait", "LISTEN 0 128", "LISTEN 3 128", true},
		{"as many as may", "LISTEN 0 128", "LISTEN 129 128", false},
		{"another process", "sshd", "nginx", false},
		{"another address", "0.0.0.0:22", "192.0.2.1:22", false},
		{"another port", ":22", ":23", false},
		{"another protocol", "udp UNCONN", "dccp UNCONN", false},
		{"on one interface", "0.0.0.0:22", "0.0.0.0%eth0:22", false},
		{"gone", "udp UNCONN 0 0 0.0.0.0:68 0.0.0.0:*\n", "", false},
		{"not read", before, "an error", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := strings.Replace(before, tt.old, tt.now, 1)
			if tt.old != "" && now == before {
				t.Fatal("nothing has changed")
			}
			if got := load(before).SameBeside(load(now)); got != tt.same {
				t.Errorf("the same: %t, want %t", got, tt.same)
			}
		})
	}
}
