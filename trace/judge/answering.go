// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Findings about endpoints that real connections do not come to.
const (
	EndpointRefused           = "EndpointRefused"
	EndpointTimeout           = "EndpointTimeout"
	EndpointUnreachable       = "EndpointUnreachable"
	EndpointSilent            = "EndpointSilent"
	DataNotAcknowledged       = "DataNotAcknowledged"
	EndpointReachableDirectly = "EndpointReachableDirectly"
)

// fails says for connections what they came to.
var fails = map[string]string{"": "{actual}"}

var (
	_ = register(kind{
		code: EndpointRefused, severity: mismatch, scope: onPath, by: connections, effect: fails,
		remedy: advice("look at the pod: is its process up, and does it listen at the Service's targetPort (and not at " +
			"127.0.0.1 alone)?"),
	})
	_ = register(kind{
		code: EndpointTimeout, severity: mismatch, scope: onPath, by: connections, effect: fails,
		remedy: advice(
			"look at the pod, at NetworkPolicies that select it, and at the network between the nodes (routes, " +
				"tunnels, the cloud's firewall)",
		),
	})
	_ = register(kind{
		code: EndpointUnreachable, severity: mismatch, scope: onPath, by: connections, effect: fails,
		remedy: advice("find out whose address it is: that of a deleted pod stays in an EndpointSlice that no controller " +
			"updates; else look at the routes and neighbours on {node} (ip route get ADDRESS, ip neigh)"),
	})
	_ = register(kind{
		code: EndpointSilent, severity: mismatch, scope: onPath, by: connections, effect: fails,
		remedy: advice(
			"look at the pod: a process that hangs or is stopped accepts connections by its kernel alone; look " +
				"for rules that drop packets of established connections; and make sure that the server answers what " +
				"--payload sends",
		),
	})
	_ = register(kind{
		code: DataNotAcknowledged, severity: mismatch, scope: onPath, by: connections, effect: fails,
		remedy: advice(
			"if connections are answered with a smaller --size, large packets are lost: compare the MTU of all interfaces " +
				"between client and endpoint (--end-to-end does); else look for rules that drop packets of established " +
				"connections, and for a full queue of the listening socket (ss -ltn in the pod)",
		),
	})
	_ = register(kind{
		code: EndpointReachableDirectly, severity: mismatch, scope: onPath, by: connections, effect: fails,
		remedy: advice(
			"compare both with -o wide; look for rules of other programs after the translation, for rp_filter, and for " +
				"answers that take another route",
		),
	})
)

// failure is how connections can end that a client would not be content with.
var failures = []struct {
	end  string // of a probe
	code string // where the endpoint itself is why
	// word ends a sentence about connections; straight says what it means of those that go straight to the endpoint.
	word, straight string
}{
	{
		snapshot.ProbeRefused, EndpointRefused, "refused",
		"direct connections to it are refused, too: nothing listens at its port, or a rule rejects them",
	},
	{
		snapshot.ProbeTimeout, EndpointTimeout, "timed out",
		"direct connections to it get no answer, either",
	},
	{
		snapshot.ProbeNoRoute, EndpointUnreachable, "no route",
		"direct connections to it end without a route, too: no host answers at its address, or none is known to have it",
	},
	{
		snapshot.ProbeSilent, EndpointSilent, "accepted, and not answered",
		"direct connections to it are accepted, too, and what is sent over them gets no answer",
	},
	{
		snapshot.ProbeUnacknowledged, DataNotAcknowledged, "accepted, and the data not acknowledged",
		"direct connections to it are accepted, too, and what is sent over them is not acknowledged, which the kernel does " +
			"even if no process reads it: packets with data, or those that acknowledge them, are lost",
	},
	{
		snapshot.ProbeClosed, EndpointSilent, "accepted, and closed without an answer",
		"direct connections to it are accepted, too, and ended without an answer to what is sent over them",
	},
}

// tried are the connections to one endpoint that were made in one way, by how they ended.
type tried struct {
	all, good int
	ends      map[string]int
}

func (t *tried) add(x *snapshot.Probe) {
	end := endOf(x)
	if end == snapshot.ProbeFailed {
		return // the node could not try
	}
	if t.ends == nil {
		t.ends = map[string]int{}
	}
	t.all++
	t.ends[end]++
	switch end {
	case snapshot.ProbeConnected, snapshot.ProbeAnswered, snapshot.ProbeSent:
		t.good++
	}
}

// worst returns the index in failures of how most of them failed; -1 where none did.
func (t *tried) worst() int {
	at, most := -1, 0
	for i := range failures {
		if n := t.ends[failures[i].end]; n > most {
			at, most = i, n
		}
	}
	return at
}

// text counts how they ended: "2 of 20 timed out".
func (t *tried) text() string {
	out := ""
	for i := range failures {
		if n := t.ends[failures[i].end]; n > 0 {
			if out != "" {
				out += ", "
			}
			out += fmt.Sprintf("%d of %d %s", n, t.all, failures[i].word)
		}
	}
	if out == "" {
		out = fmt.Sprintf("%d of %d as they should be", t.good, t.all)
	}
	return out
}

// unanswered finds endpoints that connections do not come to although the rules lead there: each is asked directly, and
// is a finding also where no connection by way of the Service was sent to it.
func (p *pathCase) unanswered() []issue {
	through := map[netip.AddrPort]*tried{}
	var nowhere tried // sent to an endpoint that nothing tells
	for i := range p.probes.List {
		x := &p.probes.List[i]
		to := x.SentTo(p.probes.To)
		if !to.IsValid() || to == p.probes.To {
			nowhere.add(x)
			continue
		}
		if through[to] == nil {
			through[to] = &tried{}
		}
		through[to].add(x)
	}
	found := issuesByCode{p: p}
	reached := 0
	explained := map[int]bool{} // failures that an endpoint itself shows
	for i := range p.want.Endpoints {
		at := p.want.Endpoints[i].Address
		service, direct := through[at], p.straightTo(at)
		if service == nil {
			service = &tried{}
		}
		if direct.good > 0 {
			reached++
		}
		switch bad := direct.worst(); {
		case bad >= 0 && direct.good == 0 && service.good == 0:
			explained[bad] = true
			found.add(failures[bad].code, at, failures[bad].word, failures[bad].straight, service, direct)
		case service.worst() < 0:
		case direct.good > 0:
			found.add(EndpointReachableDirectly, at, failures[service.worst()].word,
				"direct connections to it are accepted; through the Service they fail", service, direct)
		case direct.all == 0:
			k := service.worst()
			found.add(failures[k].code, at, failures[k].word,
				"connections through the Service fail; none was made directly to the endpoint", service, direct)
		}
	}
	if k := nowhere.worst(); k >= 0 && !explained[k] {
		code := failures[k].code
		message := "connections through the Service fail; which endpoint they were sent to is not known"
		if reached == len(p.want.Endpoints) {
			code = EndpointReachableDirectly
			message = "every endpoint accepts direct connections; through the Service they fail"
		}
		found.add(code, netip.AddrPort{}, failures[k].word, message, &nowhere, &tried{})
	}
	return p.byKernel(found.list)
}

// straightTo are the connections that were made straight to an endpoint, from the path's origin.
func (p *pathCase) straightTo(at netip.AddrPort) *tried {
	out := &tried{}
	if t, ok := target(&p.want.Frontend, &p.want.Origin, at); ok && p.Probes[t] != nil {
		for k := range p.Probes[t].List {
			out.add(&p.Probes[t].List[k])
		}
	}
	return out
}

// issuesByCode are issues of which each is about all endpoints of which the same is true.
type issuesByCode struct {
	p    *pathCase
	list []issue
}

func (f *issuesByCode) add(code string, at netip.AddrPort, actual, message string, service, direct *tried) {
	i := slices.IndexFunc(f.list, func(is issue) bool { return is.code == code && is.message == message })
	if i < 0 {
		i = len(f.list)
		f.list = append(f.list, issue{code: code, expected: "connected", actual: actual, message: message})
	}
	is := &f.list[i]
	name := ""
	if at.IsValid() {
		is.endpoints = append(is.endpoints, at.String())
		is.subject = cut(is.endpoints, 4)
		name = " to " + at.String()
	}
	if len(is.evidence) >= maxEvidence {
		return
	}
	from := originName(&f.p.want.Origin)
	if service.all > 0 {
		is.evidence = append(is.evidence, say(from+", through the Service"+name+": "+service.text())...)
	} else if at.IsValid() {
		is.evidence = append(is.evidence, say(from+", through the Service"+name+": none was sent there")...)
	}
	if direct.all > 0 {
		is.evidence = append(is.evidence, say(from+", straight"+name+": "+direct.text())...)
	}
}

// originName names an origin that connections were made from.
func originName(o *expect.Origin) string {
	if o.Kind == expect.FromPod {
		return "from pod " + o.Pod
	}
	return "from the node"
}

// byKernel adds to the issues what the kernel says of the packets that were lost. What it discards on this node is
// the finding then, unless a closed port is all that it says.
func (p *pathCase) byKernel(issues []issue) []issue {
	lost := p.losses()
	for i := range issues {
		is := &issues[i]
		for k := range lost {
			l := &lost[k]
			if l.Endpoint != "" && len(is.endpoints) > 0 && !slices.Contains(is.endpoints, l.Endpoint) {
				continue
			}
			is.evidence = append([]report.Evidence{{Where: l.Where, Text: lostText(l)}}, is.evidence...)
			if is.code == EndpointSilent || l.Reason == reasonNoSocket || is.code == PacketDropped {
				continue
			}
			if l.Where.Table == "" && l.Reason == "" && l.Hook == "" {
				continue // it left the node
			}
			is.code = PacketDropped
			is.message = "the kernel of this node discards packets of these connections: " + lostText(l)
			if why, ok := reasons[reasonOf(l)]; ok && why.remedy.text != "" {
				is.remedy = p.advise(why.remedy, is)
			}
		}
		is.evidence = is.evidence[:min(len(is.evidence), maxEvidence)]
	}
	return issues
}
