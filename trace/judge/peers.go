// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Owner is a machine or pod that has an address: another Node, or a pod of the node under judgement, which then is
// Node.
type Owner struct {
	Node string
	Pod  string // namespace/name; "" for the Node itself
}

// String names it for people.
func (o Owner) String() string {
	if o.Pod != "" {
		return "the pod " + o.Pod
	}
	return o.Node
}

// PeerFiles are the files by which an [Owner] tells its interfaces' addresses.
var PeerFiles = []string{snapshot.AddrFile, snapshot.LinkFile}

// peers are what other nodes and pods say of their interfaces, read at most once each.
type peers struct {
	read func(Owner) (*snapshot.Node, error)
	held holders

	mu     sync.Mutex
	all    map[Owner]*peer
	wanted []string // the Nodes whose word would decide, and that nobody has read
}

// peer is what an owner says of its interfaces; net is nil where it was not read, why is then why not, "" where nobody
// asked it.
type peer struct {
	net *host.Network
	why string
}

// ask returns what an owner says of itself.
func (p *peers) ask(o Owner) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.all[o]
	if out == nil {
		out = p.load(o)
		if p.all == nil {
			p.all = map[Owner]*peer{}
		}
		p.all[o] = out
	}
	return out
}

// want notes that what an owner says of itself decides over a path. Where nobody has read it, and it is a Node, it is
// one to be read.
func (p *peers) want(o Owner) {
	if x := p.ask(o); x.net != nil || x.why != "" || o.Pod != "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.wanted, o.Node) {
		p.wanted = append(p.wanted, o.Node)
		slices.Sort(p.wanted)
	}
}

// askFor wants what an owner says, for the path under judgement.
func (w *worker) askFor(o Owner) {
	w.asked = true
	w.peers.want(o)
}

func (p *peers) load(o Owner) *peer {
	if p.read == nil {
		return &peer{}
	}
	files, err := p.read(o)
	if err != nil {
		return &peer{why: snapshot.Reason(err)}
	}
	if files == nil {
		return &peer{}
	}
	var f host.Files
	for name, data := range map[string]*[]byte{snapshot.AddrFile: &f.Addr, snapshot.LinkFile: &f.Link} {
		if *data, _, err = files.File(name); err != nil {
			return &peer{why: snapshot.Reason(err)}
		}
	}
	net, errs := host.Parse(f)
	if len(errs) > 0 {
		return &peer{why: errors.Join(errs...).Error()}
	}
	if net.Addresses() == nil || !net.HasLinks() {
		return &peer{}
	}
	return &peer{net: net}
}

// claim is what the owner of a next hop says of the link-layer address that the neighbour table has of it.
type claim int

const (
	noClaim claim = iota // nobody was asked, or what it says decides nothing
	agreed               // it is that of the interface with the next hop's address
	denied               // none of its interfaces has it
)

// claimed asks the owner of a next hop whether a link-layer address is its own; text is the evidence. A frame that is
// for another address is not for the kernel (eth_type_trans in net/ethernet/eth.c, ip_rcv_core in net/ipv4/ip_input.c).
// Of another interface of the owner it is not known whether that passes frames on to this one, as the port of a bridge
// does; nor of an address of a group, and of one that others answer with, too, as a router does that stands between the
// two: among pods there is none.
func (n *node) claimed(h hop, mac string) (c claim, text string) {
	o, ok := n.holderOf(h.ip)
	if !ok {
		return noClaim, ""
	}
	x := n.peers.ask(o)
	if x.net == nil {
		if x.why != "" {
			return noClaim, "what " + o.String() + " says of its interfaces cannot be read: " + x.why
		}
		return noClaim, ""
	}
	dev, _ := x.net.HasAddress(h.ip)
	own := x.net.MAC(dev)
	if dev == "" || own == "" {
		return noClaim, ""
	}
	text = fmt.Sprintf("ip link of %s: %s has %s", o, dev, own)
	if strings.EqualFold(own, mac) {
		return agreed, text
	}
	for _, d := range x.net.Devs() {
		if strings.EqualFold(x.net.MAC(d), mac) {
			return noClaim, text + ", and " + d + " has " + mac
		}
	}
	others := func(a netip.Addr) bool { // found for the same owner, they tell no more than this one
		dev, _ := x.net.HasAddress(a)
		return a != h.ip && dev == ""
	}
	if ofGroup(mac) || !n.net.PodsOnly(h.dev, h.ip.Is4()) && slices.ContainsFunc(n.net.Neighbours(h.dev, mac), others) {
		return noClaim, text
	}
	return denied, text + ", and none has " + mac
}

// holderOf returns whose address one is: another Node's, or a running pod's of this node.
func (n *node) holderOf(a netip.Addr) (Owner, bool) {
	if name := n.cluster.ofNode(a); name != "" {
		return Owner{Node: name}, name != n.Name
	}
	if n.local(a) {
		return Owner{Node: n.Name, Pod: n.cluster.podNames[a]}, true
	}
	return Owner{}, false
}

// ofGroup tells whether a link-layer address is that of several: its first byte is odd.
func ofGroup(mac string) bool {
	first, _, _ := strings.Cut(mac, ":")
	b, err := strconv.ParseUint(first, 16, 8)
	return err != nil || b&1 != 0
}
