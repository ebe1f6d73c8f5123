// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"fmt"
	"testing"
)

func TestNodePortAddresses(t *testing.T) {
	for _, c := range []struct {
		list      []string
		localhost bool
		want      string // the addresses of each family
	}{
		{nil, true, "[127.0.0.1 192.168.0.1] [fd00::1]"},
		{nil, false, "[192.168.0.1] [fd00::1]"},
		{[]string{"primary"}, true, "[192.168.0.1] [fd00::1]"},
		{[]string{"localhost"}, true, "[127.0.0.1] []"},
		{[]string{"localhost", "192.168.0.0/16"}, true, "[127.0.0.1 192.168.0.1] []"},
		{[]string{"10.244.1.0/24"}, true, "[10.244.1.1] [fd00::1]"}, // one family named: the other serves everywhere
		{[]string{"10.244.1.0/24", "0.0.0.0/0"}, true, "[127.0.0.1 192.168.0.1] [fd00::1]"},
		{[]string{"172.16.0.0/12"}, true, "[] [fd00::1]"},
		{[]string{"::/0"}, true, "[127.0.0.1 192.168.0.1] [fd00::1]"},
	} {
		in := testInputs(testService())
		in.Config.NodePortAddresses, in.Config.LocalhostNodePorts = c.list, c.localhost
		n := New(in)
		if got := fmt.Sprint(n.nodePorts[0].addresses, " ", n.nodePorts[1].addresses); got != c.want {
			t.Errorf("%v: got %s, want %s", c.list, got, c.want)
		}
	}
}
