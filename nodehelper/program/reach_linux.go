// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/cgroup"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/process"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/sockets"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// reach refuses a plan that takes addresses from others, or leads to addresses, of classes that are not allowed. What
// the plugin says of the cluster adds to the classes of an address; what can be found out on the node is found out
// here. Three of the plugin's facts have to be believed: which addresses are those of Pods of the Service's namespace,
// which of these Pods are in the network of another node, and that the Service is that of the API server.
func (p *Programmer) reach(req *Request) error {
	facts := req.Facts
	if err := p.facts(req.Plan, &facts); err != nil {
		return fmt.Errorf("nothing was changed, as the node's addresses cannot be read: %w", err)
	}
	if refusal, ok := errors.AsType[plan.RefusalError](req.Plan.Expose(&facts, req.Allow)); ok {
		return RefusalError(refusal)
	}
	return nil
}

// facts adds to the facts of a request what this node knows.
func (p *Programmer) facts(of *plan.Plan, f *plan.Facts) error {
	for _, device := range []string{kubeproxy.IPVSDevice, kubeproxy.ProgramDevice} {
		bound, err := addressesOf(device)
		if err != nil {
			return err
		}
		f.Bound = append(f.Bound, bound...)
	}
	all, err := addressesOf("")
	if err != nil {
		return err
	}
	routes, err := allRoutes()
	if err != nil {
		return err
	}
	single, local := localTo(routes)
	f.Own = slices.DeleteFunc(append(all, single...), func(a netip.Addr) bool { return slices.Contains(f.Bound, a) })
	f.OwnKnown, f.Local = true, local
	broadcasts, gateways, uplinks := routed(routes)
	f.Broadcasts, f.Gateways = broadcasts, gateways
	f.Resolvers = resolvers(p.o.Root)
	pods, err := podsHere(of, uplinks, linked(routes))
	if err != nil {
		return err
	}
	f.AllPods = slices.Concat(f.AllPods, pods)
	if at, ok := apiServer(os.Getenv); ok {
		f.APIServer = append(slices.Clone(f.APIServer), at)
	}
	if !of.AsksForSockets(f.Own) { // the kernel goes through all its sockets to tell
		return nil
	}
	listening, err := sockets.Listening()
	if err != nil {
		return err
	}
	owners := sync.OnceValue(func() map[string]socketOwner { return socketOwners(listening) })
	taken := map[uint16]bool{}
	for i := range of.Frontends {
		if of.Frontends[i].Kind == expect.NodePort {
			taken[of.Frontends[i].Address.Port()] = true
		}
	}
	for i := range listening {
		// kube-proxy itself listens at NodePorts, up to 1.26.
		if l := &listening[i]; taken[l.Local.Port()] && !owners()[l.Inode].kubeProxy {
			f.Ports = append(f.Ports, plan.Socket{At: l.Local, Protocol: l.Protocol})
		}
	}
	f.ByPod = func(at netip.AddrPort, protocol string) bool {
		return slices.ContainsFunc(listening, func(l sockets.Socket) bool {
			a := l.Local.Addr().Unmap()
			return l.Protocol == protocol && l.Local.Port() == at.Port() &&
				(a == at.Addr() || a.IsUnspecified() && (a.Is6() || at.Addr().Is4())) && owners()[l.Inode].pod
		})
	}
	return nil
}

// apiServer returns where the API server is, which the kubelet tells every container in these variables: the cluster IP
// of the Service default/kubernetes.
func apiServer(getenv func(string) string) (at netip.AddrPort, ok bool) {
	a, err := netip.ParseAddr(getenv("KUBERNETES_SERVICE_HOST"))
	if err != nil {
		return at, false
	}
	port, err := strconv.ParseUint(getenv("KUBERNETES_SERVICE_PORT"), 10, 16)
	if err != nil {
		port = apiPort
	}
	return netip.AddrPortFrom(a, uint16(port)), true
}

// apiPort is the port of the Service default/kubernetes.
const apiPort = 443

// allRoutes returns the routes of all tables.
func allRoutes() ([]netlink.Route, error) {
	routes, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("the node's routes: %w", err)
	}
	return routes, nil
}

// routed returns the broadcast addresses and the routers of routes, and the numbers of the interfaces that have
// routers.
func routed(routes []netlink.Route) (broadcasts, gateways []netip.Addr, uplinks map[int]bool) {
	uplinks = map[int]bool{}
	for i := range routes {
		r := &routes[i]
		if r.Type == unix.RTN_BROADCAST && r.Dst != nil {
			if a, ok := netip.AddrFromSlice(r.Dst.IP); ok {
				broadcasts = append(broadcasts, a.Unmap())
			}
		}
		hops := append([]*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via}}, r.MultiPath...)
		for _, h := range hops {
			ip := h.Gw
			if via, ok := h.Via.(*netlink.Via); ok {
				ip = via.Addr
			}
			if a, ok := netip.AddrFromSlice(ip); ok {
				gateways = append(gateways, a.Unmap())
				uplinks[h.LinkIndex] = true
			}
		}
	}
	return broadcasts, gateways, uplinks
}

// localTo returns the addresses and the networks that the node takes for its own, whatever its interfaces have: those
// of routes of the type local, by which a load balancer gives its addresses to its nodes.
func localTo(routes []netlink.Route) (single []netip.Addr, networks []netip.Prefix) {
	for i := range routes {
		r := &routes[i]
		if r.Type != unix.RTN_LOCAL || r.Dst == nil {
			continue
		}
		bits, _ := r.Dst.Mask.Size()
		a, ok := netip.AddrFromSlice(r.Dst.IP)
		if p := netip.PrefixFrom(a.Unmap(), bits); ok && p.IsSingleIP() {
			single = append(single, p.Addr())
		} else if ok {
			networks = append(networks, p)
		}
	}
	return single, networks
}

// linked tells which addresses a route of some table leads to without a router: only these can be neighbours of the
// node. To ask the kernel of each of thousands of frontends takes longer.
func linked(routes []netlink.Route) func(netip.Addr) bool {
	nets, all := map[netip.Prefix]bool{}, false
	for i := range routes {
		r := &routes[i]
		if r.Type != unix.RTN_UNICAST || r.Gw != nil || r.Via != nil {
			continue
		}
		if r.Dst == nil {
			all = true
			continue
		}
		bits, _ := r.Dst.Mask.Size()
		if a, ok := netip.AddrFromSlice(r.Dst.IP); ok {
			nets[netip.PrefixFrom(a.Unmap(), bits).Masked()] = true
		}
	}
	return func(a netip.Addr) bool {
		for bits := 0; bits <= a.BitLen() && !all; bits++ {
			if x, err := a.Prefix(bits); err == nil && nets[x] {
				return true
			}
		}
		return all
	}
}

// podsHere returns the frontends of a plan that the node sends to a container of its own: out of an interface that is
// one end of a veth pair, or a bridge that has no other ports, and by which no router is reached (a node may itself be
// a container).
func podsHere(p *plan.Plan, uplinks map[int]bool, linked func(netip.Addr) bool) ([]netip.Addr, error) {
	kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE) // one socket for thousands of frontends
	if err != nil {
		return nil, fmt.Errorf("the node's routes: %w", err)
	}
	defer kernel.Close()
	toContainers := sync.OnceValues(func() (map[int]bool, error) { return linksToContainers(kernel.LinkList) })
	var out []netip.Addr
	for i := range p.Frontends {
		a := p.Frontends[i].Address.Addr()
		if p.Frontends[i].Kind == expect.NodePort || slices.Contains(out, a) || !linked(a) {
			continue
		}
		index, ok, err := onLink(kernel.RouteGet, a)
		if err != nil {
			return nil, err
		}
		if !ok || uplinks[index] {
			continue
		}
		only, err := toContainers()
		if err != nil {
			return nil, err
		}
		if only[index] {
			out = append(out, a)
		}
	}
	return out, nil
}

// linksToContainers returns the numbers of the interfaces that lead to containers only.
func linksToContainers(list func() ([]netlink.Link, error)) (map[int]bool, error) {
	all, err := dump(list)
	if err != nil {
		return nil, fmt.Errorf("the node's interfaces: %w", err)
	}
	out, ports, others := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, l := range all {
		veth, bridge := l.Type() == "veth", l.Attrs().MasterIndex
		out[l.Attrs().Index] = veth
		ports[bridge] = ports[bridge] || veth
		others[bridge] = others[bridge] || !veth
	}
	for _, l := range all {
		if i := l.Attrs().Index; l.Type() == "bridge" {
			out[i] = ports[i] && !others[i]
		}
	}
	return out, nil
}

// resolverFiles name the DNS servers that programs of the node ask: resolv.conf(5), and that of systemd-resolved, which
// puts its own loopback address into the first.
var resolverFiles = []string{"etc/resolv.conf", "run/systemd/resolve/resolv.conf"}

// resolvers returns the DNS servers of the node, as far as its files can be read.
func resolvers(root string) []netip.Addr {
	var out []netip.Addr
	for _, name := range resolverFiles {
		f, err := os.Open(filepath.Join(root, name))
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(f, 64<<10))
		f.Close()
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			words := strings.Fields(line)
			if len(words) > 1 && words[0] == "nameserver" {
				if a, err := netip.ParseAddr(words[1]); err == nil && !a.IsLoopback() {
					out = append(out, a.WithZone("").Unmap())
				}
			}
		}
	}
	return out
}

// socketOwner is whose a socket is.
type socketOwner struct{ pod, kubeProxy bool }

// socketOwners tells whose sockets are, by their inodes.
func socketOwners(list []sockets.Socket) map[string]socketOwner {
	out := map[string]socketOwner{}
	users, err := sockets.Users(list)
	if err != nil {
		return out
	}
	proxies := map[string]bool{}
	if found, _, err := process.Find(process.Programs(kubeproxy.Process)); err == nil {
		for _, p := range found {
			proxies[strconv.Itoa(p.PID)] = true
			p.Close()
		}
	}
	return cgroup.OnNode(func(error) map[string]socketOwner {
		for inode, by := range users {
			var o socketOwner
			for _, u := range by {
				o.pod = o.pod || ofPod(u.PID)
				o.kubeProxy = o.kubeProxy || proxies[u.PID]
			}
			out[inode] = o
		}
		return out
	})
}

// ofPod reports whether the kubelet has put a process into a Pod's control group. The thread is as of [cgroup.OnNode].
func ofPod(pid string) bool {
	groups, err := cgroup.Of(pid)
	if err == nil {
		_, err = cgroup.PodOf(groups)
	}
	return err == nil
}
