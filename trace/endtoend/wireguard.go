// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// wireguardOverhead is how much WireGuard adds to a packet, beside the outer IP header: UDP, its own header and tag.
const wireguardOverhead = 40

// wireguard judges a tunnel of WireGuard: the peer that the packet is for, what that one knows of this one, and the
// outer packet. What is secret is not read: with keys that agree the two may still not understand one another, which
// only the time of their last handshake tells.
func (x *crossing) wireguard(place string) (s report.Segment, in string) {
	const segment = report.SegmentNetwork
	show := "wg show " + x.out
	own := x.from.Host.WireGuard(x.out)
	if own == nil {
		return unknown(segment, place, x.from.Name, show, "the peers of %s were not read (%s)", x.out,
			snapshot.WireGuardFile), ""
	}
	peer := own.PeerFor(x.dst)
	if peer == nil {
		return with(wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out),
			"no peer of %s on %s has %s among its allowed IPs: packets for it are refused", x.out, x.from.Name, x.dst),
			allowed(x.out, own)...), ""
	}
	if in, s = x.peerDevice(place, peer); in == "" {
		return s, ""
	}
	back := x.to.Host.WireGuard(in).Peer(own.PublicKey)
	if s, ok := x.agree(place, in, peer, back); !ok {
		return s, ""
	}
	line := fmt.Sprintf("wg show %s: peer %s endpoint %s", x.out, peer.PublicKey, peer.Endpoint)
	end := peer.Endpoint.Addr().Unmap().WithZone("")
	if s, ok := x.atNode(place, "packets for "+x.dst.String(), show, line, end); !ok {
		return s, in
	}
	if port := x.to.Host.WireGuard(in).Port; peer.Endpoint.Port() != port {
		return with(wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out),
			"%s of %s sends to port %d of %s, and %s there listens at port %d", x.out, x.from.Name, peer.Endpoint.Port(), end,
			in, port), line), in
	}
	e := &envelope{
		name: "WireGuard", proto: netfilter.UDP, port: peer.Endpoint.Port(), mark: own.Mark,
		ports: netfilter.PortRange{First: own.Port, Last: own.Port}, // wg_socket_init in drivers/net/wireguard/socket.c
		adds:  wireguardOverhead + ipHeader(end),
	}
	arrival, s, ok := x.outer(place, e, end)
	if !ok {
		return s, in
	}
	if peer.Handshake == "" && peer.Sent != "" {
		return with(unknown(segment, place, x.from.Name, show,
			"%s of %s and %s of %s have never agreed on keys, though %s were sent: whether the packets come through is not "+
				"known", x.out, x.from.Name, in, x.to.Name, peer.Sent),
			fmt.Sprintf("wg show %s: peer %s has no latest handshake", x.out, peer.PublicKey)), in
	}
	if peer.Silent() {
		return with(unknown(segment, place, x.from.Name, show,
			"%s of %s has sent %s to %s, and received nothing: whether the packets come through is not known", x.out,
			x.from.Name, peer.Sent, x.to.Name),
			fmt.Sprintf("wg show %s: peer %s latest handshake: %s, transfer: %s received, %s sent", x.out, peer.PublicKey,
				peer.Handshake, peer.Received, peer.Sent)), in
	}
	if s, ok := x.tunnelSizes(place, e, end, arrival.In); !ok {
		return s, in
	}
	return right(segment, place, "WireGuard by %s to %s (%s of %s)", x.out, peer.Endpoint, in, x.to.Name), in
}

// peerDevice finds the other node's interface that is a peer; "" and a segment where there is none.
func (x *crossing) peerDevice(place string, peer *host.WireGuardPeer) (dev string, s report.Segment) {
	const segment = report.SegmentNetwork
	var has []string
	for _, d := range x.to.Host.WireGuards() {
		w := x.to.Host.WireGuard(d)
		if w.PublicKey == "" || w.PublicKey != peer.PublicKey {
			has = append(has, fmt.Sprintf("wg show on %s: %s has the public key %s", x.to.Name, d, w.PublicKey))
			continue
		}
		if up, known := x.to.Host.Up(d); known && !up {
			return "", with(wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out), "%s of %s is down", d, x.to.Name),
				"ip link on "+x.to.Name+": "+d+" is not UP")
		}
		return d, s
	}
	for _, d := range x.to.Host.Devs() {
		if kind, _ := x.to.Host.Kind(d); kind == "wireguard" && x.to.Host.WireGuard(d) == nil {
			return "", unknown(segment, place, x.to.Name, "wg show "+d, "the key of %s on %s was not read (%s)", d, x.to.Name,
				snapshot.WireGuardFile)
		}
	}
	if _, known := x.to.Host.Kind("lo"); !known {
		return "", unknown(segment, place, x.to.Name, "ip -d link", "the interfaces of %s were not read (%s)", x.to.Name,
			snapshot.LinkFile)
	}
	return "", with(wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out),
		"%s of %s sends packets for %s to a peer whose key no interface of %s has: the two do not agree on keys", x.out,
		x.from.Name, x.dst, x.to.Name),
		append([]string{fmt.Sprintf("wg show on %s: %s peer %s", x.from.Name, x.out, peer.PublicKey)}, has...)...)
}

// agree tells whether two peers may understand one another; back is what the other node has of this one, nil for
// nothing.
func (x *crossing) agree(place, in string, peer, back *host.WireGuardPeer) (s report.Segment, ok bool) {
	const segment = report.SegmentNetwork
	no := func(format string, args ...any) report.Segment {
		return wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out), format, args...)
	}
	other := x.to.Host.WireGuard(in)
	switch {
	case back == nil:
		return with(no("%s of %s has no peer with the key of %s on %s: it answers no handshake", in, x.to.Name, x.out,
			x.from.Name), fmt.Sprintf("wg show on %s: %s has the public key %s", x.from.Name, x.out,
			x.from.Host.WireGuard(x.out).PublicKey)), false
	case peer.Preshared != back.Preshared:
		return no("of %s on %s and %s on %s one has a preshared key, and the other one does not: they do not agree on keys",
			x.out, x.from.Name, in, x.to.Name), false
	case other.PeerFor(x.src) != back:
		return with(no("%s of %s discards packets from %s that come from %s: its peer there does not have the address among "+
			"its allowed IPs", in, x.to.Name, x.src, x.from.Name), allowed(in, other)...), false
	case !peer.Endpoint.IsValid():
		return with(no("%s of %s does not know the address of %s: packets for it are refused", x.out, x.from.Name,
			x.to.Name), fmt.Sprintf("wg show %s: peer %s has no endpoint", x.out, peer.PublicKey)), false
	}
	return s, true
}

// allowed lists the allowed IPs of an interface.
func allowed(dev string, w *host.WireGuard) []string {
	out := make([]string, 0, len(w.Peers))
	for i := range w.Peers {
		text := "(none)"
		if list := w.Peers[i].Allowed; len(list) > 0 {
			text = fmt.Sprint(list[:min(len(list), maxEvidence)])
		}
		out = append(out, fmt.Sprintf("wg show %s: peer %s allowed ips %s", dev, w.Peers[i].PublicKey, text))
	}
	return out[:min(len(out), maxEvidence)]
}
