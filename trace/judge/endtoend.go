// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Findings about segments that have no finding of a path of one node.
const (
	// SegmentUnknown says that something of a connection from end to end was not read, or cannot be evaluated.
	SegmentUnknown = "SegmentUnknown"
	// EndpointsNotFollowed says that a connection was followed to some of the endpoints only.
	EndpointsNotFollowed = "EndpointsNotFollowed"
)

var (
	_ = register(kind{
		code: endtoend.EndpointNotListening, severity: mismatch, scope: onPath, by: endpointOnNode,
		remedy: advice("look at the pod: is its process up, and which port does it listen at? The Service's targetPort " +
			"has to be that one"),
	})
	_ = register(kind{
		code: endtoend.EndpointListensElse, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("let the process listen at the pod's address, or at all addresses (0.0.0.0, [::]), and at the " +
			"Service's targetPort; or change the targetPort to where it listens"),
	})
	_ = register(kind{
		code: endtoend.BacklogFull, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("look at the process in the pod: it does not accept connections, or read what comes (it " +
			"hangs, is stopped, or is overloaded); more endpoints, or a longer queue (the backlog of listen, " +
			"net.core.somaxconn), help only with peaks"),
	})
	_ = register(kind{
		code: endtoend.ProcessStopped, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("find out who has stopped the process (a debugger, kill -STOP) or frozen its container " +
			"(docker pause, ctr task pause): on the endpoint's node kill -CONT with its number resumes it, or docker " +
			"unpause, ctr -n k8s.io task resume with the container's ID; or delete the pod"),
	})
	_ = register(kind{
		code: endtoend.PodDrops, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("find out who writes rules in the pod's network namespace (an init container, a sidecar's CNI " +
			"plugin), and make it allow the Service's connections; where the evidence is a setting of the kernel, who sets it"),
	})
	_ = register(kind{
		code: endtoend.PodNoRoute, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("the CNI plugin sets a pod's routes when the pod is created: delete the pod, so that it is created " +
			"again; if it comes back without a route, look at the CNI plugin's configuration and log"),
	})
	_ = register(kind{
		code: endtoend.EndpointNodeDrops, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("on the endpoint's node, find who owns {where}: a NetworkPolicy has to allow the client, and a "+
			"firewall has to let packets to and from pods pass",
			command{line: "kubectl get networkpolicies -A", when: "to see the policies"}),
	})
	_ = register(kind{
		code: endtoend.EndpointNodeNoRoute, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("the endpoint's node does not reach the pod's interface: restart the CNI plugin's pod there, or " +
			"delete the endpoint's pod, so that its interface and route are created again"),
	})
	_ = register(kind{
		code: endtoend.TunnelPeerMissing, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("restart the CNI's pod on both nodes: it sets the tunnel's interface, neighbours and forwarding " +
			"table"),
	})
	_ = register(kind{
		code: endtoend.TunnelDropped, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("allow the tunnel's packets between the nodes in the firewalls of both: UDP to the " +
			"port that the message names (8472 for flannel's VXLAN, 4789 for Calico's), or the IP protocol (4 for IPIP); " +
			"look at {where}"),
	})
	_ = register(kind{
		code: endtoend.EndToEndAnswerLost, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("the request arrives, and its answer does not come back: if it is dropped, make {where} accept " +
			"packets of established connections; if there is no route back to the client, or an asymmetric one, look at the " +
			"routes there; if it goes directly to a client outside, let the entry node translate the source address " +
			"(kube-proxy does), or set the Service's externalTrafficPolicy to Local"),
	})
	_ = register(kind{
		code: endtoend.EndToEndWrongNeighbour, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("remove the entry, so that the kernel asks for the address; where a CNI sets it (flannel), " +
			"restart the CNI's pod on that node"),
	})
	_ = register(kind{
		code: endtoend.LinkMTUDiffers, severity: warning, scope: onPath, by: segments,
		remedy: advice("give the interfaces of all nodes on one link the same MTU, both ends of a pod's interface and the " +
			"bridge behind it another one, and the pods' network no more than the nodes' less the tunnel's headers"),
	})
	_ = register(kind{
		code: endtoend.InterfaceDown, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("find out who has set the interface down (the node's network configuration, a person); ip link set "+
			"dev with its name and up, on {node}, sets it up again, and what configures the node has to add the routes and "+
			"addresses that went with it", command{line: "ip -d link", onNode: true}),
	})
	_ = register(kind{
		code: SegmentUnknown, severity: note, scope: onPath, by: segments,
		remedy: advice("run the commands above where they say; a snapshot that lacks files is created again by dump " +
			"--end-to-end"),
	})
	_ = register(kind{
		code: EndpointsNotFollowed, severity: note, scope: onPath, by: segments,
		remedy: advice("--all-endpoints follows the connection to every endpoint"),
	})
)

// Visited is what was read for a connection from end to end.
type Visited struct {
	State *nodestate.State  // nil where the node was not read
	Files *snapshot.Node    // with those of its pods
	Why   string            // why it was not read
	Pods  map[string]string // why pods of the node were not read, by namespace/name
}

// Ends are the ends of the connections to follow.
type Ends struct {
	Client  string               // the client's node, or that by which a client outside of the cluster comes in
	Pod     string               // namespace/name of the client's pod; "" where it has its node's network namespace
	Named   string               // namespace/name of the client's pod
	Service types.NamespacedName // whose name is judged
	Visited map[string]*Visited
	// Answers are what name servers answered to [NameQuestions]; nil where they were not asked.
	Answers *snapshot.NameAnswers
	// Health is what health-check ports of the client's node answered to [HealthQuestions]; nil where they were not asked.
	Health *snapshot.HealthAnswers
	// Followed is what the kernels of the nodes saw of connections that were made, of each run; nil where none were.
	Followed []*Followed
	// Follow tells whether connections to an endpoint's address are followed; nil: to all.
	Follow func(netip.Addr) bool

	tour *tour // what was loaded: the same ends are asked about and judged
}

// EndToEnd adds to the paths of the client's node what becomes of their connections beyond it, up to the endpoint's pod
// and back: segments, findings, and a verdict that covers them.
func EndToEnd(c *Cluster, ends *Ends, out *report.NodeReport) {
	if out.Error != "" {
		return
	}
	t := newTour(c, ends)
	if t == nil {
		return // the report says so
	}
	out.Summary = report.Summary{Nodes: out.Summary.Nodes}
	t.coverage = out.Coverage
	verdict := report.ByDesign
	name := t.aboutName()
	for i := range out.Paths {
		t.follow(&out.Paths[i])
		t.addName(&out.Paths[i], name)
		t.addHealth(&out.Paths[i], out.Findings)
		out.Summary.Count(out.Paths[i].Verdict)
		verdict = report.Together(verdict, out.Paths[i].Verdict)
	}
	out.Verdict = report.WithFindings(verdict, out.Findings)
}

// newTour loads what was read; nil where the client's node was not, or cannot be judged.
func newTour(c *Cluster, ends *Ends) *tour {
	if t := ends.tour; t != nil && t.cluster == c {
		return t
	}
	v := ends.Visited[ends.Client]
	if v == nil || v.State == nil {
		return nil
	}
	n, err := newNode(c, v.State, nil)
	if err != nil {
		return nil
	}
	t := &tour{node: n, ends: ends, nodes: map[string]*endtoend.Node{}, unread: map[string]string{}}
	for name, x := range ends.Visited {
		if x.State == nil {
			t.unread[name] = x.Why
			continue
		}
		t.nodes[name] = visitedNode(x)
	}
	ends.tour = t
	return t
}

// visitedNode loads the pods of a node.
func visitedNode(x *Visited) *endtoend.Node {
	out := &endtoend.Node{State: x.State, Pods: map[string]*endtoend.Pod{}}
	for name, why := range x.Pods {
		out.Pods[name] = &endtoend.Pod{Why: why, Packets: -1}
	}
	for _, name := range x.Files.Pods() {
		files := x.Files.Pod(name)
		s, err := nodestate.Load(files)
		if err != nil {
			out.Pods[name] = &endtoend.Pod{Why: snapshot.Reason(err), Packets: -1}
			continue
		}
		p := &endtoend.Pod{State: s, Packets: -1}
		if data, ok, err := files.File(snapshot.PacketFile); ok && err == nil && !host.Unterminated(data) {
			p.Packets = max(bytes.Count(data, []byte("\n"))-1, 0) // the first line is a head
		}
		out.Pods[name] = p
	}
	return out
}

// tour follows the paths of a node.
type tour struct {
	*node

	ends   *Ends
	nodes  map[string]*endtoend.Node
	unread map[string]string
	// coverage is that of the client's node, to which what lies beyond it is added.
	coverage *report.Coverage
}

// follow follows a path's connections.
func (t *tour) follow(p *report.Path) {
	dst, err := netip.ParseAddr(p.Frontend.Address)
	src, err2 := netip.ParseAddr(p.Origin.Address)
	kind := expect.OriginKind(p.Origin.Kind)
	if err != nil || err2 != nil {
		return
	}
	f := expect.Frontend{
		Address: dst, Port: uint16(p.Frontend.Port), //nolint:gosec // a port
		Protocol: corev1.Protocol(p.Frontend.Protocol),
	}
	origin, enters := t.originOf(p, &f, src)
	conn := t.connection(start(f, origin))
	conn.Outside, conn.Enters = kind == expect.FromExternal, enters
	left := 0
	for i := range p.Expected.Endpoints {
		e := &p.Expected.Endpoints[i]
		at, ok := e.AddrPort()
		switch {
		case !ok:
		case t.ends.Follow != nil && !t.ends.Follow(at.Addr()):
			left++
		default:
			conn.Endpoints = append(conn.Endpoints, endtoend.Endpoint{
				At: at, Pod: e.Pod, Node: e.Node, HostNetwork: t.cluster.onHostNetwork(e.Pod, e.Node, at.Addr()),
			})
		}
	}
	here := t.here(p)
	p.Segments = conn.Segments(&here)
	t.withPrograms(p, conn)
	t.withContainers(p)
	if t.coverage != nil {
		t.gaps(t.coverage, conn)
	}
	t.conclude(p, left, t.observeBehind(p, conn.Endpoints)...)
	report.Complete(p)
}

// originOf is where a path's packets come from, and whether those of a client outside of the cluster are certain to
// come in by the interface that they are taken to.
func (t *tour) originOf(p *report.Path, f *expect.Frontend, src netip.Addr) (o expect.Origin, enters bool) {
	o = expect.Origin{Kind: expect.OriginKind(p.Origin.Kind), Address: src}
	switch o.Kind {
	case expect.FromPod:
		o.Iface = t.ifaceOf(src)
	case expect.FromExternal:
		named := !p.Origin.Sample
		o.Iface = t.entrance(f, named)
		enters = t.enters(f, &o, named)
	case expect.FromNode:
	}
	return o, enters
}

// onHostNetwork tells whether an endpoint is a pod without a network namespace of its own.
func (c *Cluster) onHostNetwork(pod, node string, at netip.Addr) bool {
	if p := c.podObject(pod); p != nil {
		return p.Spec.HostNetwork
	}
	for _, o := range c.Nodes {
		if o.Name == node {
			return slices.ContainsFunc(o.Status.Addresses,
				func(x corev1.NodeAddress) bool { return isAddress(at)(x.Address) })
		}
	}
	return false
}

// here is the segment of the client's node, which the path's own judgement tells. What it says of the next hop is
// compared in the segment of the network.
func (t *tour) here(p *report.Path) report.Segment {
	s := report.Segment{Segment: report.SegmentClientNode, Place: "node " + t.Name, Verdict: report.SegmentRight}
	if p.Origin.Kind == string(expect.FromExternal) {
		s.Segment = report.SegmentEntryNode
	}
	var codes []string
	for i := range p.Findings {
		f := &p.Findings[i]
		if f.Severity == report.Error && !slices.Contains(ofNetwork, f.Code) && !slices.Contains(codes, f.Code) &&
			!ofConnections(f.Code) {
			codes = append(codes, f.Code)
			s.Evidence = append(s.Evidence, f.Evidence...)
		}
	}
	s.Evidence = s.Evidence[:min(len(s.Evidence), maxEvidence)]
	switch {
	case len(codes) > 0:
		s.Verdict, s.Code = report.SegmentWrong, codes[0]
		s.Message = strings.Join(codes, ", ")
	case p.Verdict == report.Unknown:
		s.Verdict, s.Message = report.SegmentUnknown, strings.Join(p.Codes(), ", ")
		if s.Message == "" {
			s.Message = "the path on this node is not known"
		}
	case p.Verdict == report.ByDesign:
		s.Message = "refused, as the API asks for"
	default:
		s.Message = "rules and routes send connections to the endpoints that they should"
	}
	return s
}

// conclude makes findings and the path's verdict of its segments. left is how many endpoints were not followed, found
// what is known beside the segments.
func (t *tour) conclude(p *report.Path, left int, found ...issue) {
	var open []report.Evidence
	has := func(code string) bool {
		return slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return f.Code == code })
	}
	certain := func(code string) bool {
		return slices.ContainsFunc(p.Findings, func(f report.Finding) bool {
			return f.Code == code && f.Severity == mismatch
		})
	}
	same := map[string]string{
		endtoend.TunnelPeerMissing: NoTunnelEnd, endtoend.TunnelDropped: TunnelPacketsDropped,
		endtoend.EndToEndWrongNeighbour: WrongNeighbour,
	}
	for i := range p.Segments {
		s := &p.Segments[i]
		switch {
		case s.OfFirstNode(), s.Untranslated && consequence(p, s):
			continue
		case s.Verdict == report.SegmentUnknown:
			text := segmentText(s)
			if s.Command != "" {
				text += "; " + s.Command
				if s.Node != "" {
					text += " on " + s.Node
				}
				text += " tells"
			}
			open = append(open, report.Evidence{Text: text})
		}
		known := s.Code == endtoend.EndToEndAnswerLost && s.Place == "node "+t.Name && has(AnswerLost)
		if s.Code != "" && !known && !(has(s.Code) || same[s.Code] != "" && certain(same[s.Code])) {
			found = t.add(found, s)
		}
	}
	if len(open) > 0 && p.Verdict != report.Mismatch {
		found = append(found, issue{
			code: SegmentUnknown, message: fmt.Sprintf("%s of the connection from end to end cannot be judged",
				number(len(open), "segment")), evidence: open[:min(len(open), maxEvidence)],
		})
		if p.Verdict != report.ByDesign {
			p.Verdict = report.Unknown
		}
	}
	if left > 0 {
		found = append(found, issue{
			code: EndpointsNotFollowed, message: fmt.Sprintf("connections were followed to %d of %d endpoints",
				len(p.Expected.Endpoints)-left, len(p.Expected.Endpoints)),
		})
	}
	explain(p, found)
	for i := range found {
		if is := &found[i]; is.code == endtoend.EndpointNotListening && len(is.evidence) == 0 {
			is.evidence = say("ss in the endpoint's network namespace: nothing has " + is.subject)
		}
	}
	more := t.findings(found)
	p.Findings = append(p.Findings, more...)
	p.Verdict = report.WithFindings(p.Verdict, more)
}

// segmentText names a segment's place, and says what is the matter there.
func segmentText(s *report.Segment) string {
	if s.Place == "" {
		return s.Message
	}
	return s.Place + ": " + s.Message
}

// add makes an issue of a segment, or adds its endpoint to that of the same cause.
func (t *tour) add(found []issue, s *report.Segment) []issue {
	message := segmentText(s)
	if s.Untranslated { // the same of all endpoints on other nodes, at all frontends
		message = "the answer goes directly to the client, as " + t.Name + " has not translated the source address: the " +
			"client gets it from the endpoint's address, and not from the address that it connected to"
	}
	for i := range found {
		if found[i].code == s.Code && strings.TrimSuffix(found[i].message, "; responsible: "+s.Owner) == message {
			found[i].endpoints = append(found[i].endpoints, s.Endpoint)
			found[i].subject = cut(found[i].endpoints, 4)
			if s.Untranslated {
				found[i].evidence = append(found[i].evidence, placedEvidence(s)...)
			}
			return found
		}
	}
	is := issue{code: s.Code, message: message, evidence: slices.Clone(s.Evidence)}
	if s.Untranslated {
		is.evidence = placedEvidence(s)
	}
	if s.Endpoint != "" {
		is.endpoints, is.subject = []string{s.Endpoint}, s.Endpoint
	}
	if s.Refused {
		is.client = refusedBeyond[s.Code]
	}
	if s.Owner != "" {
		is.message += "; responsible: " + s.Owner
	}
	where, list := "what drops the packets", ""
	for i := range s.Evidence {
		if ref := s.Evidence[i].Where; ref != (report.RuleRef{}) {
			where, list = ref.String(), listRules(ref, s.Endpoint)
			break
		}
	}
	node, ofNode := strings.CutPrefix(s.Place, "node ")
	ofNode = ofNode && !strings.Contains(node, " ") // that of two is the network between them
	k, at := kinds[s.Code], cmp.Or(s.Node, t.Name)
	if ofNode {
		at = node
	}
	if r, commands, ok := ofSetting(s.Evidence, at); ok && ofNode {
		is.remedy = t.adviseAt(at, r, &is)
		is.remedy.Commands = commands
		return append(found, is)
	}
	if s.Untranslated {
		at = t.Name
		k = &kind{remedy: advice("let {node} translate the source address, as kube-proxy does, or set the Service's " +
			"externalTrafficPolicy to Local: then only endpoints on the node that the client asks get its connections")}
	}
	is.remedy = t.adviseAt(at, remedy{
		strings.ReplaceAll(k.remedy.text, "{where}", where), k.remedy.commands,
	}, &is)
	if ofNode && list != "" {
		first := report.Command{Line: list, Node: node}
		is.remedy.Commands = append([]report.Command{first}, is.remedy.Commands...)
	}
	pod := strings.TrimPrefix(s.Place, "pod ")
	if ns, name, ok := strings.Cut(pod, "/"); ok && pod != s.Place {
		is.remedy.Commands = append(is.remedy.Commands, t.ofWorkload(s.Code, ns, name)...)
	}
	return append(found, is)
}
