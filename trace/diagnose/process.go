// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// readSockets reads who listens on the node.
func (n *node) readSockets() error {
	data, err := n.file("listen.txt")
	if err != nil || data == nil {
		return err
	}
	list, err := host.ParseListen(data)
	if err != nil {
		return fmt.Errorf("node %s: listen.txt: %w", n.name, err)
	}
	n.sockets, n.socketsRead = list, true
	return nil
}

// listener returns who listens for a frontend's protocol at an address; nil where nobody does.
func (n *node) listener(f *expect.Frontend, at netip.AddrPort) *host.Socket {
	for i := range n.sockets {
		if s := &n.sockets[i]; s.Takes(strings.ToLower(string(f.Protocol)), at) {
			return s
		}
	}
	return nil
}

// owner names who has a socket, for people.
func owner(s *host.Socket) string {
	if s.Process == "" {
		return "a process whose name was not collected"
	}
	return fmt.Sprintf("process %s (%d)", s.Process, s.PID)
}

// byProcess judges a path that ends at a process of kube-proxy's own; ok is false for the others.
func (j *judge) byProcess(want *expect.Path, got *tally) (issues []issue, unsure string, ok bool) {
	if want.Action == expect.Proxy {
		issues, unsure = j.compareProxy(want, got)
		return issues, unsure, true
	}
	return j.userspace(want, got)
}

// compareProxy looks at a frontend that kube-proxy serves itself, by listening there: no rule may come in between. unsure says why it
// cannot be judged.
func (j *judge) compareProxy(want *expect.Path, got *tally) (issues []issue, unsure string) {
	at := netip.AddrPortFrom(want.Frontend.Address, want.Frontend.Port)
	for _, o := range got.of(string(expect.DNAT)) {
		return []issue{{
			code: Shadowed, where: o.by, expected: describe(want), actual: "sent to " + o.to.String(), evidence: []string{cite(o.by)},
			message: fmt.Sprintf("kube-proxy itself listens at %s, and a rule sends the packet elsewhere", at),
		}}, ""
	}
	if issues := refusals(want, got); len(issues) > 0 {
		return issues, ""
	}
	if !j.socketsRead {
		return nil, "kube-proxy itself should listen at " + at.String() + "; who listens on the node (listen.txt) was not collected"
	}
	s := j.listener(&want.Frontend, at)
	switch {
	case s == nil:
		return []issue{{
			code: ProxyNotListening, subject: at.String(), expected: "kube-proxy listens", actual: "nobody does",
			message: "kube-proxy itself should listen at " + at.String() + ", and nobody does: connections are refused",
		}}, ""
	case s.Process == "":
		return nil, "whether it is kube-proxy that listens at " + at.String() + " was not collected (ss -p as root tells)"
	case s.Process != proxyProcess && j.proxy.processes[s.Process] == 0:
		return []issue{{
			code: Shadowed, subject: at.String(), expected: "kube-proxy listens", actual: owner(s) + " does",
			message: owner(s) + " listens at " + at.String() + " in kube-proxy's place",
		}}, ""
	}
	return nil, ""
}

// proxyProcess is the name of kube-proxy's process.
const proxyProcess = "kube-proxy"

// userspaceChains have the rules of kube-proxy's userspace mode, which went with 1.26 (pkg/proxy/userspace/proxier.go of 1.25): they lead
// to ports at which kube-proxy listens.
var userspaceChains = []string{"KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST"}

// userspaceMode is the name of that mode.
const userspaceMode = "userspace"

// holdsUserspace tells whether the kernel has rules of userspace mode.
func (n *node) holdsUserspace() bool {
	for _, t := range n.rules.Tables {
		if t.Name != "nat" || t.Backend == netfilter.BackendNative {
			continue
		}
		for _, name := range userspaceChains {
			if c := t.Chain(name); c != nil && len(c.Rules) > 0 {
				return true
			}
		}
	}
	return false
}

// userspace recognises packets that rules of userspace mode bring to kube-proxy itself, which connects to an endpoint of its own choice. In
// the rules it is not to be seen which ones it chooses from: unsure. ok is false where the packets take another way.
func (j *judge) userspace(want *expect.Path, got *tally) (issues []issue, unsure string, ok bool) {
	for _, o := range got.of(string(expect.DNAT)) {
		who := "kube-proxy"
		switch {
		case byProgram(o.by) && o.by.Rule != nil && o.by.Rule.Target == "REDIRECT": // an endpoint may be on the node, too
			who = "the proxy of kubectl svcproxy program"
		case o.by.Chain == nil || !slices.Contains(userspaceChains, o.by.Chain.Name):
			continue
		}
		switch s := j.listener(&want.Frontend, o.to); {
		case !j.socketsRead:
			unsure = "who listens there (listen.txt) was not collected"
		case s == nil:
			return []issue{{
				code: ProxyNotListening, subject: o.to.String(), endpoints: []string{o.to.String()}, where: o.by, expected: who + " listens", actual: "nobody does", evidence: []string{cite(o.by)},
				message: "the packet is brought to " + o.to.String() + " on the node, where " + who + " should listen, and nobody does: connections are refused",
			}}, "", true
		default:
			unsure = owner(s) + " listens there"
		}
		return nil, "userspace mode of " + who + ": " + o.by.String() + " brings the packet to " + o.to.String() + " on the node (" + unsure +
			"); that process chooses the endpoint, and the rules do not show which ones it knows", true
	}
	return nil, "", false
}
