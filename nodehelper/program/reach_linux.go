// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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
		if !hasDevice(device) {
			continue
		}
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
	f.Own = slices.DeleteFunc(all, func(a netip.Addr) bool { return slices.Contains(f.Bound, a) })
	f.OwnKnown = true
	routes, err := allRoutes()
	if err != nil {
		return err
	}
	broadcasts, gateways, uplinks := routed(routes)
	f.Broadcasts, f.Gateways = broadcasts, gateways
	f.Resolvers = resolvers(p.o.Root)
	f.AllPods = slices.Concat(f.AllPods, podsHere(of, uplinks))
	if at, ok := apiServer(os.Getenv); ok {
		f.APIServer = append(slices.Clone(f.APIServer), at)
	}
	listening, err := listeners()
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
		if l := &listening[i]; taken[l.At.Port()] && !owners()[l.inode].kubeProxy {
			f.Ports = append(f.Ports, l.Socket)
		}
	}
	f.ByPod = func(at netip.AddrPort, protocol string) bool {
		return slices.ContainsFunc(listening, func(l listener) bool {
			a := l.At.Addr().Unmap()
			return l.Protocol == protocol && l.At.Port() == at.Port() &&
				(a == at.Addr() || a.IsUnspecified() && (a.Is6() || at.Addr().Is4())) && owners()[l.inode].pod
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
	list := func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	}
	routes, err := list()
	// Other programs may change them at the same time.
	for n := 0; n < undoTries && errors.Is(err, netlink.ErrDumpInterrupted); n++ {
		routes, err = list()
	}
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

// podsHere returns the frontends of a plan that the node sends to a container of its own: out of an interface that is
// one end of a veth pair, or a bridge that has no other ports, and by which no router is reached (a node may itself be
// a container).
func podsHere(p *plan.Plan, uplinks map[int]bool) []netip.Addr {
	var out []netip.Addr
	for i := range p.Frontends {
		a := p.Frontends[i].Address.Addr()
		if p.Frontends[i].Kind == expect.NodePort || slices.Contains(out, a) {
			continue
		}
		routes, err := netlink.RouteGet(a.AsSlice())
		if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST || routes[0].Gw != nil ||
			routes[0].Via != nil || len(routes[0].MultiPath) > 0 || uplinks[routes[0].LinkIndex] {
			continue
		}
		if link, err := netlink.LinkByIndex(routes[0].LinkIndex); err == nil && toContainers(link) {
			out = append(out, a)
		}
	}
	return out
}

// toContainers tells whether an interface leads to containers only.
func toContainers(link netlink.Link) bool {
	switch link.Type() {
	case "veth":
		return true
	case "bridge":
	default:
		return false
	}
	all, err := netlink.LinkList()
	if err != nil {
		return false
	}
	ports := 0
	for _, l := range all {
		if l.Attrs().MasterIndex != link.Attrs().Index {
			continue
		}
		if l.Type() != "veth" {
			return false
		}
		ports++
	}
	return ports > 0
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

// listener is a socket of this network namespace that waits for connections or packets.
type listener struct {
	plan.Socket

	inode string
}

// listeners lists them from /proc/net: to ask over sock_diag would load modules.
func listeners() ([]listener, error) {
	var out []listener
	for _, table := range []struct{ file, protocol, state string }{
		{"tcp", "TCP", "0A"}, {"tcp6", "TCP", "0A"}, {"udp", "UDP", "07"}, {"udp6", "UDP", "07"},
	} {
		data, err := os.ReadFile("/proc/thread-self/net/" + table.file)
		if errors.Is(err, os.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			// sl local_address rem_address st … uid timeout inode (get_tcp4_sock in net/ipv4/tcp_ipv4.c)
			f := strings.Fields(lines.Text())
			if len(f) < 10 || f[3] != table.state {
				continue
			}
			if at, ok := procAddress(f[1]); ok {
				out = append(out, listener{plan.Socket{At: at, Protocol: table.protocol}, f[9]})
			}
		}
	}
	return out, nil
}

// procAddress reads ADDRESS:PORT of /proc/net/tcp, in hexadecimal: words of four bytes in this machine's order.
func procAddress(text string) (at netip.AddrPort, ok bool) {
	var port uint16
	address, rest, _ := strings.Cut(text, ":")
	if _, err := fmt.Sscanf(rest, "%04X", &port); err != nil || len(address)%8 != 0 {
		return at, false
	}
	var raw []byte
	for i := 0; i < len(address); i += 8 {
		var word uint32
		if _, err := fmt.Sscanf(address[i:i+8], "%08X", &word); err != nil {
			return at, false
		}
		raw = binary.NativeEndian.AppendUint32(raw, word)
	}
	a, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a, port), ok
}

// socketOwner is whose a socket is.
type socketOwner struct{ pod, kubeProxy bool }

// ofPod finds a Pod's in the name of a control group: below kubepods of the kubelet, or, seen from another Pod's own
// root, below podUID (pkg/kubelet/cm/pod_container_manager_linux.go).
var ofPod = regexp.MustCompile(`kubepods|/pod[0-9a-f]{8}[-_0-9a-f]{20,}`)

// socketOwners finds the processes of sockets, by their inodes. Processes that end meanwhile are none.
func socketOwners(list []listener) map[string]socketOwner {
	wanted := map[string]bool{}
	for i := range list {
		wanted["socket:["+list[i].inode+"]"] = true
	}
	out := map[string]socketOwner{}
	dirs, err := filepath.Glob("/proc/[0-9]*/fd")
	if err != nil {
		return out
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			link, err := os.Readlink(filepath.Join(dir, e.Name()))
			if err != nil || !wanted[link] {
				continue
			}
			process := filepath.Dir(dir)
			comm, _ := os.ReadFile(filepath.Join(process, "comm"))
			group, _ := os.ReadFile(filepath.Join(process, "cgroup"))
			inode := strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")
			o := out[inode]
			o.pod = o.pod || ofPod.Match(group)
			o.kubeProxy = o.kubeProxy || strings.TrimSpace(string(comm)) == "kube-proxy"
			out[inode] = o
		}
	}
	return out
}
