// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// node is a node under judgement: its state, with what the cluster's objects say of it. It does not change once it is
// made, and is shared by the goroutines that judge its paths.
type node struct {
	*nodestate.State

	cluster *Cluster
	object  *corev1.Node  // nil where Nodes were not collected
	net     *host.Network // State.Host, with the addresses that the API knows
	config  kubeproxy.Config
	stored  *kubeproxy.Config // that of the ConfigMap; nil where there is none, or which one counts is not known
	exp     *expect.Node
	mode    mode        // in which the rules are judged
	shown   report.Mode // for the report
	survey  survey
	values  values

	reported string // the mode, by /proxyMode; "" where that is not known
	refused  []refusedFile
	sources  sources
	distinct distinctions
	podCIDRs []netip.Prefix
	ownPods  *host.AddrMap // for local
	peers    *peers
	done     <-chan struct{}             // Request.Done
	unread   map[netfilter.Family]string // why a family cannot be judged
}

// newNode prepares the judgement of a node. The error says in one sentence why nothing can be claimed of it; the node
// then has what is known all the same, for the report.
func newNode(c *Cluster, s *nodestate.State, done <-chan struct{}) (*node, error) {
	n := &node{
		State: confirmed(c, s), cluster: c, net: s.Host, unread: map[netfilter.Family]string{}, mode: modes[0],
		peers: &peers{}, done: done,
	}
	return n, snapshot.ErrorOf(n.Name, n.prepare())
}

// prepare reads what the judgement needs to know of the node.
func (n *node) prepare() error {
	if err := n.findObject(); err != nil {
		return err
	}
	n.net = n.Host.WithAPI([]netip.Addr{n.internalIP(true), n.internalIP(false)}, n.others())
	n.podCIDRs, n.ownPods = n.podNetworks(), n.podAddresses()
	if err := n.sameMachine(); err != nil {
		return err
	}
	n.readConfig()
	n.showStatus()
	if r := n.replacedBy(); r != nil {
		n.shown.ReplacedBy = r.name
		return replacedError{r}
	}
	n.chooseMode()
	if err := n.noteUnread(); err != nil {
		return err
	}
	var beside parallel.Group
	beside.Go(func() { n.sources.pods, n.sources.local = n.podsAsSamples() })
	n.settle()
	beside.Wait()
	n.expect()
	n.look()
	n.settleVersion()
	if n.stopped() {
		return errStopped
	}
	n.listValues()
	return nil
}

func (n *node) findObject() error {
	if slices.Contains(n.cluster.Missing, "nodes") {
		return nil
	}
	var names []string
	for _, o := range n.cluster.Nodes {
		if o.Name == n.Name {
			n.object = o
			return nil
		}
		names = append(names, o.Name)
	}
	return fmt.Errorf(
		"the cluster has no Node of that name (it has %s): the folder below nodes/ must have the Node's name",
		cut(names, 8),
	)
}

// others are the addresses of endpoints on nodes; an endpoint on a node has either an address of its own or that node's
// InternalIP (hostNetwork), so that but for this node's own they are none of its addresses. nil where the node's own
// are not known.
func (n *node) others() *host.AddrMap {
	if !n.internalIP(true).IsValid() {
		return nil
	}
	return n.cluster.endpoints
}

// sameMachine compares the addresses of the Node object with those on the interfaces.
func (n *node) sameMachine() error {
	if n.object == nil || n.net.Addresses() == nil {
		return nil
	}
	var want []string
	for _, a := range n.object.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		want = append(want, a.Address)
		if ip, err := netip.ParseAddr(a.Address); err == nil && slices.Contains(n.net.Addresses(), ip) {
			return nil
		}
	}
	if len(want) == 0 {
		return nil
	}
	return fmt.Errorf(
		"%s has none of the Node's addresses (%s): the files were taken on another machine",
		snapshot.AddrFile,
		strings.Join(want, ", "),
	)
}

// internalIP returns the Node object's address of a family.
func (n *node) internalIP(v4 bool) netip.Addr {
	if n.object == nil {
		return netip.Addr{}
	}
	for _, a := range n.object.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && ip.Is4() == v4 {
			return ip
		}
	}
	return netip.Addr{}
}

func (n *node) podNetworks() []netip.Prefix {
	var out []netip.Prefix
	if n.object != nil {
		for _, c := range n.object.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(c); err == nil {
				out = append(out, p)
			}
		}
	}
	return out
}

// pods are the running pods of the node with an address of their own, by name.
func (n *node) pods() []pod { return n.cluster.pods[n.Name] }

// readConfig takes kube-proxy's configuration from the best source there is. One that names a mode which there is not
// is none.
func (n *node) readConfig() {
	n.config = kubeproxy.DefaultConfig()
	var pod *corev1.Pod
	if x := n.cluster.proxyPods[n.Name]; x != nil {
		pod = x.object
	}
	var about string
	var err error
	if n.stored, about, err = kubeproxy.ConfigOf(pod, n.cluster.configs); err != nil {
		n.refused = append(n.refused, refusedFile{about, err})
	}
	for _, c := range []*kubeproxy.Config{n.stored, n.Config} {
		if c == nil {
			continue
		}
		if err := checkMode(c.Mode); err != nil {
			n.refused = append(n.refused, refusedFile{c.Source, err})
			continue
		}
		n.config = *c
	}
	n.noteSources()
	n.noteVersion()
	n.shown = report.Mode{
		Configured:       n.config.Mode,
		ConfigSource:     n.config.Source,
		KubeProxyVersion: n.config.Version,
		VouchedBy:        n.vouchedBy(),
	}
	if n.config.Source == kubeproxy.SourceDefaults {
		n.shown.ConfigSource = string(kubeproxy.NotKnown)
	}
}

// chooseMode finds out in which mode kube-proxy's rules are to be judged. What the running kube-proxy says of itself
// counts most; then what the kernel holds, where it holds the rules of one mode only; then the configuration.
func (n *node) chooseMode() {
	held := held(n.State)
	name := n.reported
	switch {
	case name != "":
	case len(held) == 1:
		name = held[0].name()
	default:
		name = n.config.Mode
	}
	n.mode = modeOf(name)
	switch {
	case slices.Contains(held, n.mode):
		n.shown.Actual = n.mode.name()
	case len(held) == 1:
		n.shown.Actual = held[0].name()
	}
	n.mode.showBackends(n)
	if holdsUserspace(n.State) {
		n.shown.Actual = kubeproxy.Userspace
	}
	n.config.Mode = n.mode.name()
	n.shown.LastSync = n.Proxy.LastSync()
}

// noteUnread notes which families cannot be judged. The error is for a node of which none can.
func (n *node) noteUnread() error {
	for _, f := range nodestate.Families {
		if why := n.mode.notRead(n.State, f); why != "" {
			n.unread[f] = why
		}
	}
	if n.unread[netfilter.IPv4] == "" || n.unread[netfilter.IPv6] == "" {
		return nil
	}
	if n.ListsUnread() || n.mode.tellsWhy(n.State) || n.FailedRules() || n.NotAll[netfilter.IPv4] != nil {
		return errors.New(n.unread[netfilter.IPv4])
	}
	return fmt.Errorf(
		"neither %s nor %s was collected (or both are empty): no packet can be followed",
		snapshot.IPTablesFile,
		snapshot.IP6TablesFile,
	)
}

func (n *node) expectation() *expect.Node {
	name := n.Name
	if n.config.HostnameOverride != "" {
		name = n.config.HostnameOverride
	}
	if len(n.podCIDRs) == 0 {
		n.podCIDRs = n.config.ClusterCIDRs
	}
	return expect.New(expect.Inputs{
		Services:  n.cluster.Services,
		Slices:    n.cluster.EndpointSlices,
		Index:     n.cluster.index,
		Node:      n.object,
		NodeName:  name,
		Config:    n.config,
		Layout:    n.Layout(),
		Addresses: n.net.Addresses(),
		PodNames:  n.cluster.podNames,
	})
}
