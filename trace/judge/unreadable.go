// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// needed are the files of what may stop a packet although every rule lets it pass. One that is there and cannot be read
// is not absent: the paths that it may be about are Unknown. nft-hooks.txt is not among them: without it every order of
// chains is tried.
var needed = []struct {
	file    string
	what    string // what it would tell
	matters func(p *pathCase) bool
	command string // that prints it on the node
}{
	{
		snapshot.ProgramsFile, "whether filters of tc or programs of BPF are on the packet's path",
		func(*pathCase) bool { return true }, "bpftool net",
	},
	{
		snapshot.XfrmFile, "whether policies of IPsec select the packet",
		func(p *pathCase) bool { return p.want.Origin.Kind != expect.FromNode || p.sentBy(everyDevice) }, "ip xfrm policy",
	},
	{
		snapshot.EbtablesFile, "whether rules of ebtables-legacy decide over what passes a bridge",
		func(p *pathCase) bool { return p.net.MayBridge(p.want.Origin.Iface) || p.sentBy(p.net.MayBridge) },
		"ebtables-legacy -t filter -L",
	},
	{
		snapshot.NeighbourFile, "whether the next hop's link-layer address is right",
		func(p *pathCase) bool { return p.sentBy(everyDevice) }, "ip neigh show nud all",
	},
	{
		snapshot.BridgeFDBFile, "whether frames go to the right end of a tunnel",
		func(p *pathCase) bool { return p.sentBy(p.net.MayForwardFrames) }, "bridge fdb show",
	},
}

func everyDevice(string) bool { return true }

// sentBy tells whether packets may leave by an interface of which something is true.
func (p *pathCase) sentBy(is func(dev string) bool) bool {
	return slices.ContainsFunc(p.res.Outcomes, func(o netfilter.Outcome) bool {
		return o.End == netfilter.Sent && is(o.Packet.Out)
	})
}

// unreadable makes paths Unknown that may depend on a file that is there and cannot be read.
var unreadable = &detector{stage: stageOnward, path: func(p *pathCase) []issue {
	if p.want.Action != expect.DNAT || p.verdict == report.Mismatch || p.verdict == report.Unknown {
		return nil
	}
	var out []issue
	for _, x := range needed {
		r := p.Reading(x.file)
		if r.State != nodestate.Unreadable && r.State != nodestate.Partial || r.Empty() || !x.matters(p) {
			continue
		}
		is := issue{
			code: EvidenceUnreadable, subject: x.file,
			message:  x.what + " is not known: " + x.file + " cannot be read, or not all of it",
			evidence: say(x.file + ": " + r.Reason), remedy: p.askLive(),
		}
		is.remedy.Commands = append(is.remedy.Commands, report.Command{Line: x.command, Node: p.Name, When: "to see it"})
		out = append(out, is)
	}
	if len(out) > 0 {
		p.verdict = report.Unknown
	}
	return out
}}
