// SPDX-License-Identifier: Apache-2.0

package gen

import (
	"bytes"
	"testing"
)

func TestSaved(t *testing.T) {
	for _, c := range []struct{ dump, want string }{
		{":INPUT - [0:0]", ":INPUT ACCEPT [0:0]"},
		{":KUBE-FW - [0:0]", ":KUBE-FW - [0:0]"},
		{
			`-A KUBE-X -m comment --comment "shop/web cluster IP" -m tcp -p tcp -d 10.96.0.1 --dport 80 ! -i cni0 -j X`,
			`-A KUBE-X -p tcp -d 10.96.0.1 ! -i cni0 -m comment --comment "shop/web cluster IP" -m tcp --dport 80 -j X`,
		},
		{
			`-A OUTPUT -m comment --comment kubernetes service portals -j KUBE-SERVICES`,
			`-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
		},
		{
			`-A KUBE-SEP-X -m comment --comment shop/web -s 10.0.0.1 -j KUBE-MARK-MASQ`,
			`-A KUBE-SEP-X -s 10.0.0.1 -m comment --comment "shop/web" -j KUBE-MARK-MASQ`,
		},
	} {
		if got := string(saved([]byte(c.dump + "\n"))); got != c.want+"\n" {
			t.Errorf("got  %swant %s\n", got, c.want)
		}
	}
}

func TestSameSeedSameCluster(t *testing.T) {
	a, b := New(7, 20, "v1.37.1", "iptables"), New(7, 20, "v1.37.1", "iptables")
	if !bytes.Equal(marshal(a.Services), marshal(b.Services)) || !bytes.Equal(marshal(a.Slices), marshal(b.Slices)) {
		t.Error("the same seed made two clusters")
	}
}
