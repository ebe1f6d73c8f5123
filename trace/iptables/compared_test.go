// SPDX-License-Identifier: Apache-2.0

//go:build linux

package iptables

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// notCompared are the matches and targets that no test compares with a kernel, and why.
var notCompared = map[string]string{
	"-m icmpv6":      "iptables prints icmp6; programs that write save files themselves use both",
	"-m nfacct":      "the kernel takes it with an accounting object alone, which none of the programs here makes",
	"-j CONNSECMARK": "the kernel takes it with SELinux alone",
	"-j FLOWOFFLOAD": "the kernels of OpenWrt alone have it",
	"-j LED":         "the kernel takes it with a LED trigger alone",
	"-j QUEUE":       "the kernel takes NFQUEUE in its place, which is compared",
	"-j SECMARK":     "the kernel takes it with SELinux alone",
	"-j SYNPROXY":    "the kernel answers in the server's place: the packet is at its end",
	"-j TPROXY":      "it needs a socket that listens for it; without one the kernel drops",
	"-j ULOG":        "Linux has had none since 3.17",
}

// TestEveryMatchIsComparedWithAKernel: each match and target whose meaning is known has a rule in kernelRules, or a
// term in test/walk/random, where a kernel says what it does; otherwise nobody would notice that it is read wrongly.
func TestEveryMatchIsComparedWithAKernel(t *testing.T) {
	terms, err := os.ReadFile(filepath.Join("..", "..", "test", "walk", "random", "terms_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, ofIPTables, _ := strings.Cut(string(terms), "var iptablesMatches")
	ofIPTables, _, ok := strings.Cut(ofIPTables, "var nftMatches")
	if !ok {
		t.Fatal("terms_test.go has no iptablesMatches before nftMatches")
	}
	compared := map[string]bool{}
	for _, m := range regexp.MustCompile(`-[mj] (\{proto#1\}|\w+)`).FindAllString(kernelRules+ofIPTables, -1) {
		compared[m] = true
	}
	if compared["-m {proto#1}"] {
		compared["-m tcp"], compared["-m udp"] = true, true
	}
	known := map[string]bool{}
	for name, m := range matches {
		if m.depends == "" || m.only != nil || m.proto != 0 || m.always {
			known["-m "+name] = true
		}
	}
	for name, compile := range targets {
		o, _ := compile(&ruleSpec{compiler: &compiler{}, scope: &scope{}, rule: &netfilter.Rule{}}, nil)
		if v, is := o.(*op.Verdict); !is || v.Kind != netfilter.Opaque {
			known["-j "+name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		why, excepted := notCompared[name]
		switch {
		case !compared[name] && !excepted:
			t.Errorf("%s is compared with no kernel: give it a line in kernelRules, or a term in test/walk/random", name)
		case compared[name] && excepted:
			t.Errorf("%s is compared with a kernel, and excepted: %s", name, why)
		}
	}
	for name := range notCompared {
		if !known[name] {
			t.Errorf("%s is excepted, and no match or target whose meaning is known", name)
		}
	}
}
