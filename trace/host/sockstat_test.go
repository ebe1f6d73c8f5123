// SPDX-License-Identifier: Apache-2.0

package host

import "testing"

func TestSocketCounts(t *testing.T) {
	for text, want := range map[string]*SocketCounts{
		"sockets: used 139\nTCP: inuse 5 orphan 0 tw 28000 alloc 18 mem 2\nUDP: inuse 3 mem 0\nUDPLITE: inuse 7\n" +
			"TCP6: inuse 4\nUDP6: inuse 2\n": {TCP: 9, TimeWait: 28000, UDP: 5},
		"TCP6: inuse 4":                    {TCP: 4},
		"":                                 nil,
		"TCP:\nUDP: inuse\nTCP: inuse x\n": nil,
		"TCP: inuse 99999999999999999999":  nil,
	} {
		got, err := ParseSocketCounts([]byte(text))
		if (err == nil) == (got == nil) || (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
