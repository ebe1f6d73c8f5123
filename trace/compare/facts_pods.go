// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// maxPods is of how many pods of a node the network namespaces are compared: a snapshot has those of a few Services.
const maxPods = 500

// pods reads the network namespaces of pods that were collected.
func (r *reader) pods(files *snapshot.Node) {
	names := files.Pods()
	if n := len(names) - maxPods; n > 0 {
		r.unread[PartPods] = fmt.Sprintf("%d of %d pods", n, len(names))
		names = names[:maxPods]
	}
	for _, name := range names {
		of := files.Pod(name)
		p := &Facts{node: r.node}
		r.Facts.pods[name] = p
		state, err := nodestate.Load(of)
		if err != nil {
			p.why = snapshot.Reason(err)
			continue
		}
		x := newReader(p, state, r.objects)
		x.rules()
		x.sets(of)
		x.hooks(of)
		x.network()
		x.listeners()
		x.resolver(of)
		x.identity()
		x.gateways()
		x.sortOwn()
	}
}

// gateways notes the gateways of a pod, which are its node's, as its own.
func (r *reader) gateways() {
	for _, v4 := range []bool{true, false} {
		for _, text := range r.state.Host.Routes(v4) {
			words := strings.Fields(text)
			for i, w := range words[:max(len(words)-1, 0)] {
				if w == "via" {
					r.ownText(words[i+1], "<gateway>")
				}
			}
		}
	}
}

// ephemeral is the first of the ports that the kernel chooses for sockets that ask for none
// (net.ipv4.ip_local_port_range).
const ephemeral = 32768

// listeners lists the sockets that listen, without their processes' numbers and the lengths of their queues. Those at
// ports that the kernel has chosen come and go, and are left out unless they are the port of an endpoint.
func (r *reader) listeners() {
	if !r.state.SocketsRead {
		r.notRead(PartListeners, snapshot.ListenFile)
		return
	}
	ports := map[int32]bool{}
	for _, s := range r.objects.EndpointSlices {
		for i := range s.Ports {
			ports[pointer(s.Ports[i].Port)] = true
		}
	}
	seen := map[string]bool{} // several sockets of a process, one for each thread, are one
	for i := range r.state.Sockets {
		s := &r.state.Sockets[i]
		chosen := s.Port >= ephemeral && (s.Protocol != "tcp" || s.Address.IsLoopback())
		if chosen && !ports[int32(s.Port)] {
			continue
		}
		text := listenerText(s)
		if !seen[s.Protocol+text] {
			seen[s.Protocol+text] = true
			r.add(PartListeners, s.Protocol, text, text)
		}
	}
	r.sortPart(PartListeners)
}

func listenerText(s *host.Socket) string {
	words := []string{fmt.Sprintf("%s:%d", s.Bound(), s.Port)}
	for _, x := range []struct {
		is   bool
		text string
	}{
		{s.Device != "", "on " + s.Device},
		{s.Process != "", "process " + s.Process},
		{s.Stopped && !s.Frozen, "stopped"},
		{s.Frozen, "frozen"},
		{s.Full() && s.Protocol == "tcp", "its backlog is full"},
		{s.Full() && s.Protocol == "udp", "its buffer is full"},
	} {
		if x.is {
			words = append(words, x.text)
		}
	}
	return strings.Join(words, " ")
}

// sortPart sorts the lists of a part whose order means nothing.
func (r *reader) sortPart(part string) {
	for p, l := range r.lists {
		if p.part == part {
			sortClasses(l.items)
		}
	}
}

// maxLines is how many lines of a small file are compared.
const maxLines = 10_000

// resolver lists the lines of a pod's resolv.conf, in their order, and counts the sockets that take frames before IP
// does.
func (r *reader) resolver(files *snapshot.Node) {
	data, ok, err := files.File(snapshot.ResolvConfFile)
	switch {
	case err != nil:
		r.unread[PartResolver] = snapshot.Reason(err)
	case !ok: // not a file of nodes, of which the state knows more
		r.notRead(PartResolver, snapshot.ResolvConfFile)
	}
	l := r.at(place{PartResolver, "", snapshot.ResolvConfFile})
	for line := range bytes.Lines(data) {
		if at := bytes.IndexAny(line, "#;"); at >= 0 {
			line = line[:at]
		}
		if text := string(bytes.Join(bytes.Fields(line), []byte(" "))); text != "" && len(l.items) < maxLines {
			l.items = append(l.items, item{key: text, text: text})
		}
	}
	if why := r.state.Reading(snapshot.PacketFile).Reason; why != "" {
		r.unread[snapshot.PacketFile] = why
	}
	data, ok, err = files.File(snapshot.PacketFile)
	if ok && err == nil {
		// The first line is a head.
		r.set(PartListeners, "packet sockets", fmt.Sprint(max(bytes.Count(data, []byte("\n"))-1, 0)))
	}
}

// hooks lists the chains at each hook in their order, which decides among those of the same priority.
func (r *reader) hooks(files *snapshot.Node) {
	r.tables[tableKind{0, hookOrder}] = r.known(snapshot.NFTHooksFile)
	data, ok, err := files.File(snapshot.NFTHooksFile)
	if !ok || err != nil {
		return
	}
	l := r.at(place{PartRules, "", hookOrder})
	l.kind = tableKind{0, hookOrder}
	for line := range bytes.Lines(data) {
		if text := string(bytes.Join(bytes.Fields(line), []byte(" "))); text != "" && len(l.items) < maxLines {
			l.items = append(l.items, item{key: text, text: text})
		}
	}
}

// hookOrder stands for a backend of which the order at hooks is read.
const hookOrder = "order at hooks"

// known tells whether a file was read, or is known not to exist.
func (r *reader) known(file string) bool {
	return r.state.Has(file) || r.state.ListsUnread() && r.state.Unread(file) == ""
}

// tunnels lists the parameters of tunnels, the ends that frames go to, the peers of WireGuard, and what bridges were
// told.
func (r *reader) tunnels() {
	h := r.state.Host
	r.notRead(PartBridges, snapshot.BridgeFDBFile)
	for _, dev := range h.Devs() {
		if text := h.TunnelText(dev); text != "" {
			r.set(PartTunnels, dev, text)
		}
		for _, text := range h.SetForwardings(dev) {
			r.add(PartBridges, dev, text, text)
		}
		list, _ := h.Forwardings(dev)
		for _, x := range list {
			if x.Dst.IsValid() {
				text := strings.TrimSpace(x.MAC + " dst " + x.Dst.String() + " " + x.Outer())
				r.add(PartTunnels, dev, text, text)
			}
		}
	}
	r.notRead(PartTunnels, snapshot.BridgeFDBFile)
	r.notRead(PartWireGuard, snapshot.WireGuardFile)
	for _, dev := range h.WireGuards() {
		w := h.WireGuard(dev)
		r.set(PartWireGuard, dev, fmt.Sprintf("public key %s listening port %d fwmark %#x", w.PublicKey, w.Port, w.Mark))
		for i := range w.Peers {
			text := peerText(&w.Peers[i])
			r.add(PartWireGuard, dev, text, text)
		}
	}
	for _, part := range []string{PartTunnels, PartBridges, PartWireGuard} {
		r.sortPart(part)
	}
}

// peerText describes a peer of WireGuard without what changes as packets go over it, but for one that has never
// answered.
func peerText(p *host.WireGuardPeer) string {
	words := []string{"peer", p.PublicKey}
	if p.Endpoint.IsValid() {
		words = append(words, "endpoint", p.Endpoint.String())
	}
	allowed := make([]string, len(p.Allowed))
	for i, a := range p.Allowed {
		allowed[i] = a.String()
	}
	slices.Sort(allowed)
	words = append(words, "allowed ips", strings.Join(allowed, ", "))
	if p.Preshared {
		words = append(words, "preshared key")
	}
	if p.Handshake == "" && p.Sent != "" {
		words = append(words, "without a handshake")
	}
	return strings.Join(words, " ")
}

// processes lists what of the node's processes and records decides about paths: whether kube-proxy runs, what the
// command program has recorded, and programs of control groups.
func (r *reader) processes() {
	if r.state.Proxy.Listed {
		names := make([]string, 0, len(r.state.Proxy.Processes))
		for name := range r.state.Proxy.Processes {
			names = append(names, name)
		}
		slices.Sort(names)
		r.set(PartConfiguration, "processes", strings.Join(names, ", "))
	}
	r.notRead(snapshot.JournalFile, snapshot.JournalFile)
	if j := r.state.Journal; j != nil {
		for i := range j.Records {
			x := &j.Records[i]
			if len(x.Frontends) > maxLines {
				continue // program writes a few
			}
			r.set(PartConfiguration, recordsOf+x.Plan,
				strings.TrimSpace(x.Mode+" "+strings.Join(x.Frontends, " ")+" "+x.Unread))
		}
	}
	r.tables[tableKind{0, groupPrograms}] = r.known(snapshot.ProgramsFile)
	for i := range r.state.GroupPrograms {
		g := &r.state.GroupPrograms[i]
		l := r.at(place{PartRules, "program cgroup", g.Group + " " + g.Hook})
		l.kind = tableKind{0, groupPrograms}
		l.items = append(l.items, item{key: g.Text, text: g.Text, class: "any"})
		sortClasses(l.items)
	}
}

// groupPrograms stands for a backend of which the programs of control groups are read.
const groupPrograms = "programs of control groups"
