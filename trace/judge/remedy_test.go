// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// remedyText is a finding's remedy with its commands.
func remedyText(f *report.Finding) string {
	var b strings.Builder
	b.WriteString(f.Remedy)
	for _, c := range f.Commands {
		b.WriteString("\n" + c.Line)
		if c.Node != "" {
			b.WriteString(" (on " + c.Node + ")")
		}
	}
	return b.String()
}

// shellWords is how a shell splits a line; $1 is what it would have printed on the way.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.Command("bash", "-c", "set -- "+line+`; printf '%s\0' "$@"`).Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// kindsWithCommands are how many kinds of findings have commands, so that the tests below cannot pass for want of any.
const kindsWithCommands = 40

// Names from a cluster or a node stay within the word in which they stand: whatever they are, a remedy's command has
// the same words, one line, and no second command in it.
func TestHostileNamesInRemedies(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	of := func(name string, pod bool) *node {
		n := &node{State: &nodestate.State{Name: name}, cluster: &Cluster{}}
		if pod {
			n.cluster.proxyPods = map[string]*proxyPod{name: {namespace: name, name: name, owned: true, live: true}}
		}
		return n
	}
	found := func(code, name string, pod bool) []report.Command {
		f := of(name, pod).finding(issue{
			code: code, subject: name,
			where: netfilter.Ref{Chain: &netfilter.Chain{Name: name, Table: &netfilter.Table{Name: name}}},
		})
		return f.Commands
	}
	with := 0
	for _, code := range codes {
		for _, pod := range []bool{false, true} {
			plain := found(code, "NAME", pod)
			if len(plain) > 0 && pod {
				with++
			}
			for _, name := range []string{
				"a; touch " + mark, "$(touch " + mark + ")", "a\ntouch " + mark, "'; touch " + mark + "; '", "a b", "--all", "",
			} {
				for i, c := range found(code, name, pod) {
					if strings.ContainsFunc(c.Line, func(r rune) bool { return !unicode.IsPrint(r) }) {
						t.Errorf("%s: not one line: %q", code, c.Line)
					}
					got := shellWords(t, c.Line)
					want := shellWords(t, plain[i].Line)
					for k := range want {
						want[k] = strings.ReplaceAll(want[k], "NAME", name)
					}
					if strings.Join(got, "\x00") != strings.Join(want, "\x00") {
						t.Errorf("%s of %q: the command %s has the words %q, want %q", code, name, c.Line, got, want)
					}
				}
			}
		}
	}
	if with < kindsWithCommands {
		t.Errorf("%d kinds have commands, want at least %d", with, kindsWithCommands)
	}
	if made, _ := filepath.Glob(mark + "*"); len(made) > 0 {
		t.Errorf("a name was run as a command: %q", made)
	}
}

// An address has a zone, which may be any text.
func TestHostileZoneInClearing(t *testing.T) {
	zone := netip.MustParseAddr("fe80::1").WithZone("a; touch x")
	f := &expect.Frontend{Address: zone, Port: 53, Protocol: corev1.ProtocolUDP}
	c := clearing("worker-1", f, &staleTarget{to: netip.AddrPortFrom(zone, 53)})
	want := []string{
		"conntrack", "-D", "-f", "ipv6", "-p", "udp", "--orig-dst", zone.String(), "--orig-port-dst", "53", "--reply-src",
		zone.String(),
	}
	if got := shellWords(t, c.Line); strings.Join(got, "\x00") != strings.Join(want, "\x00") || c.Node != "worker-1" {
		t.Errorf("%q on %s, want %q", got, c.Node, want)
	}
}

// Every placeholder of a registration is one that is filled in, and a command has nothing to be filled in by hand.
func TestPlaceholdersOfRemedies(t *testing.T) {
	left := regexp.MustCompile(`\{[a-z]*\}|\b[A-Z]{4,}\b`)
	n := &node{State: &nodestate.State{Name: "worker-1"}, cluster: &Cluster{}}
	for _, code := range codes {
		f := n.finding(issue{code: code, subject: "10.96.0.10"})
		if strings.ContainsAny(f.Remedy, "{}") {
			t.Errorf("%s: %s", code, f.Remedy)
		}
		if len(f.Commands) > 0 && f.Remedy == "" {
			t.Errorf("%s has commands, and no text", code)
		}
		for _, c := range f.Commands {
			if left.MatchString(c.Line) {
				t.Errorf("%s: %s", code, c.Line)
			}
		}
	}
}
