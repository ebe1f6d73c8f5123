// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// TestBounds: what a rule asks of addresses and of the incoming interface is told as it is written.
func TestBounds(t *testing.T) {
	for rule, want := range map[string]string{
		"! -s 10.244.0.0/16 -d 10.96.0.1/32":   "[{0 10.244.0.0/16  false true} {1 10.96.0.1/32  false false}]",
		"! -i veth+":                           "[{2 invalid Prefix veth true true}]",
		"-i cni0 -o eth0":                      "[{2 invalid Prefix cni0 false false}]",
		"-s 10.0.0.0/255.0.255.0":              "[]",
		"-s 0.0.0.0/1":                         "[{0 0.0.0.0/1  false false}]",
		"-p tcp -m tcp --dport 80 -s 10.1.2.3": "[{0 10.1.2.3/32  false false}]",
	} {
		data := []byte("*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD " + rule + " -j ACCEPT\nCOMMIT\n")
		tables, err := Parse(data, netfilter.IPv4, netfilter.BackendNFT)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(tables[0].Chains[0].Rules[0].Bounds()); got != want {
			t.Errorf("%s: got %s, want %s", rule, got, want)
		}
	}
}
