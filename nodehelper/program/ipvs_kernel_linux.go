// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/ipvs"
	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/ipvsadm"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// ipvsLoaded tells whether the kernel has IPVS.
func ipvsLoaded() bool {
	_, err := os.Stat("/proc/thread-self/net/ip_vs")
	return err == nil
}

// hasIPVS says what the kernel lacks for virtual servers of a record; a Refusal.
func hasIPVS(root string, r *Record) error {
	if !ipvsLoaded() {
		return RefusalError("the node's kernel has no IPVS: run `modprobe ip_vs` on the node, if it has the module")
	}
	scheduler := serve(&r.Plan.Frontends[0], schedulerOf(r), nil).Scheduler
	if !hasModule(root, "ip_vs_"+scheduler) {
		return RefusalError(fmt.Sprintf("the node's kernel has no scheduler %s: module ip_vs_%s is neither loaded nor "+
			"found", scheduler, scheduler))
	}
	at := slices.IndexFunc(r.Plan.Frontends, func(f plan.Frontend) bool { return f.V6() })
	if at < 0 {
		return nil
	}
	h, err := openIPVS()
	if err != nil {
		return err
	}
	defer h.Close()
	// What a kernel without it answers to any question (ip_vs_genl_parse_service).
	_, err = h.get(serverKey{r.Plan.Frontends[at].Protocol, r.Plan.Frontends[at].Address})
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return RefusalError("the node's kernel has IPVS for IPv4 only (CONFIG_IP_VS_IPV6)")
	}
	return nil
}

// hasModule tells whether a module is loaded, built in, or can be loaded, which the kernel does by itself
// (request_module in ip_vs_scheduler_get). If the node's list of modules cannot be read, it is true, and the kernel
// decides.
func hasModule(root, name string) bool {
	if _, err := os.Stat("/sys/module/" + name); err == nil {
		return true
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return true
	}
	dir := filepath.Join(root, "lib", "modules", unix.ByteSliceToString(u.Release[:]))
	read := 0
	for _, list := range []string{"modules.builtin", "modules.dep"} {
		data, err := os.ReadFile(filepath.Join(dir, list))
		if err != nil {
			continue
		}
		read++
		for line := range strings.Lines(string(data)) {
			path, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			if file, _, _ := strings.Cut(filepath.Base(path), ".ko"); file == name {
				return true
			}
		}
	}
	return read == 0
}

// ipvsHandle is a connection to the kernel's IPVS, in this thread's network namespace.
type ipvsHandle struct{ *ipvs.Handle }

func openIPVS() (*ipvsHandle, error) {
	logrus.SetOutput(io.Discard) // moby/ipvs says there that the image has no modprobe
	h, err := ipvs.New("")
	if err != nil {
		return nil, fmt.Errorf("IPVS: %w", err)
	}
	return &ipvsHandle{h}, nil
}

// protocolNumbers are those of a plan's protocols.
var protocolNumbers = map[string]uint16{"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP, "SCTP": unix.IPPROTO_SCTP}

func familyOf(a netip.Addr) uint16 {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func (v *VirtualServer) service() *ipvs.Service {
	return &ipvs.Service{
		AddressFamily: familyOf(v.Address.Addr()), Protocol: protocolNumbers[v.Protocol], Address: v.Address.Addr().AsSlice(),
		Port:      v.Address.Port(),
		SchedName: v.Scheduler, Flags: v.Flags, Timeout: v.Timeout, Netmask: v.Netmask,
	}
}

func (r *RealServer) destination() *ipvs.Destination {
	return &ipvs.Destination{
		AddressFamily: familyOf(r.Address.Addr()), Address: r.Address.Addr().AsSlice(), Port: r.Address.Port(),
		Weight: r.Weight, ConnectionFlags: r.Method, UpperThreshold: r.Upper, LowerThreshold: r.Lower,
	}
}

// get returns a virtual server; nil: there is none.
func (h *ipvsHandle) get(k serverKey) (*VirtualServer, error) {
	s, err := h.GetService((&VirtualServer{Protocol: k.protocol, Address: k.address}).service())
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, nil //nolint:nilnil // as said
	case err != nil:
		return nil, fmt.Errorf("the virtual server %s/%s: %w", k.address, k.protocol, err)
	}
	v := &VirtualServer{
		Protocol: k.protocol, Address: k.address,
		Scheduler: s.SchedName, Flags: s.Flags &^ ipvsadm.Hashed, Timeout: s.Timeout, Netmask: s.Netmask,
	}
	list, err := h.GetDestinations(s)
	if err != nil {
		return nil, fmt.Errorf("the real servers of %s/%s: %w", k.address, k.protocol, err)
	}
	for _, d := range list {
		a, ok := netip.AddrFromSlice(d.Address)
		if !ok {
			return nil, fmt.Errorf("%s/%s has a real server at %v", k.address, k.protocol, d.Address)
		}
		v.Reals = append(v.Reals, RealServer{
			Address: netip.AddrPortFrom(a, d.Port), Weight: d.Weight, Method: d.ConnectionFlags & ipvs.ConnFwdMask,
			Upper: d.UpperThreshold, Lower: d.LowerThreshold,
		})
	}
	return v, nil
}

// at returns the virtual servers at the frontends of a plan, those that there are.
func (h *ipvsHandle) at(p *plan.Plan) (map[serverKey]*VirtualServer, error) {
	out := map[serverKey]*VirtualServer{}
	for i := range p.Frontends {
		k := serverKey{p.Frontends[i].Protocol, p.Frontends[i].Address}
		v, err := h.get(k)
		if err != nil {
			return nil, err
		}
		if v != nil {
			out[k] = v
		}
	}
	return out, nil
}

// make changes one virtual server into another; nil stands for none.
func (h *ipvsHandle) make(now, due *VirtualServer) error {
	for _, c := range changes(now, due) {
		if err := c.do(h); err != nil {
			return fmt.Errorf("ipvsadm %s: %w", c.text, err)
		}
	}
	return nil
}

func sysctlFile(name string) string { return "/proc/sys/net/ipv4/vs/" + name }

func readSysctl(name string) (string, error) {
	data, err := os.ReadFile(sysctlFile(name))
	return strings.TrimSpace(string(data)), err
}

func writeSysctl(name, value string) error {
	now, err := readSysctl(name)
	if err != nil || now == value {
		return err
	}
	return os.WriteFile(sysctlFile(name), []byte(value), 0o644) //nolint:gosec // it is there
}

// hasDevice tells whether an interface exists.
func hasDevice(name string) bool {
	_, err := netlink.LinkByName(name)
	return err == nil
}

// dumpTries is how often something is read again if other programs change it at the same time.
const dumpTries = 20

// dump lists objects of the kernel, and again if they are changed meanwhile.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	out, err := list()
	for n := 0; n < dumpTries && errors.Is(err, netlink.ErrDumpInterrupted); n++ {
		out, err = list()
	}
	return out, err
}

// addressesOf lists the addresses of an interface, if it exists; of all interfaces for "".
func addressesOf(device string) ([]netip.Addr, error) {
	var link netlink.Link
	if device != "" {
		l, err := netlink.LinkByName(device)
		var absent netlink.LinkNotFoundError
		switch {
		case errors.As(err, &absent):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", device, err)
		}
		link = l
	}
	list, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("the node's addresses: %w", err)
	}
	out := make([]netip.Addr, 0, len(list))
	for i := range list {
		if a, ok := netip.AddrFromSlice(list[i].IP); ok {
			out = append(out, a.Unmap())
		}
	}
	return out, nil
}

// onLink returns the number of the interface in whose own network the node looks for an address. ok is false where it
// does not: it has no route there, or one by a router, or the address is its own. get asks the kernel for a route; its
// error is one of the answers, unless it says that the kernel could not look (see [scarce]).
func onLink(get func(net.IP) ([]netlink.Route, error), a netip.Addr) (index int, ok bool, err error) {
	routes, err := get(a.AsSlice())
	if scarce(err) {
		return 0, false, fmt.Errorf("the route to %s: %w", a, err)
	}
	if err != nil || len(routes) == 0 {
		return 0, false, nil //nolint:nilerr // that there is no route, or one that refuses
	}
	r := &routes[0]
	return r.LinkIndex, r.Type == unix.RTN_UNICAST && r.Gw == nil && r.Via == nil && len(r.MultiPath) == 0, nil
}

// bindable refuses an address that others on the node's network have to be able to find elsewhere: once the node has it
// on any interface, it answers for it on all, unless it is told not to (arp_ignore, in kube-proxy strictARP;
// arp_process of net/ipv4/arp.c). IPv6 asks on the interface alone.
func bindable(a netip.Addr) error {
	if a.Is6() {
		return nil
	}
	index, ok, err := onLink(netlink.RouteGet, a)
	if err != nil || !ok {
		return err // without a route nobody asks; one with a router asks elsewhere
	}
	link, err := net.InterfaceByIndex(index)
	if err != nil {
		return fmt.Errorf("the interface to %s: %w", a, err)
	}
	if link.Flags&net.FlagBroadcast == 0 {
		return nil
	}
	for _, at := range []string{"all", link.Name} {
		v, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + at + "/arp_ignore")
		if err == nil && strings.TrimSpace(string(v)) != "0" {
			return nil
		}
	}
	return RefusalError(fmt.Sprintf("%s is in the network of %s: once it is bound for IPVS, the node would answer for "+
		"it there (net.ipv4.conf.all.arp_ignore is 0)", a, link.Name))
}

// ipvsAddress is an address as it is bound: alone, and at once.
func ipvsAddress(a netip.Addr) *netlink.Addr {
	out := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	if a.Is6() {
		out.Flags = unix.IFA_F_NODAD
	}
	return out
}

// errForeignDevice is the reason why the device is not used, and not removed.
const errForeignDevice = RefusalError("a device " + kubeproxy.ProgramDevice + " exists that no helper created: " +
	"rename or remove it first")

// checkDevice refuses a device of our name that somebody else has made.
func checkDevice() error {
	link, err := netlink.LinkByName(kubeproxy.ProgramDevice)
	if err == nil && !ownDevice(link) {
		return errForeignDevice
	}
	return nil
}

// bind binds addresses to the device, which is made where it is not there.
func bind(addresses []netip.Addr) error {
	if len(addresses) == 0 {
		return nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = kubeproxy.ProgramDevice, deviceMark
	if err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("the device %s: %w", kubeproxy.ProgramDevice, err)
	}
	link, err := netlink.LinkByName(kubeproxy.ProgramDevice)
	if err != nil {
		return fmt.Errorf("the device %s: %w", kubeproxy.ProgramDevice, err)
	}
	if !ownDevice(link) {
		return errForeignDevice
	}
	for _, a := range addresses {
		if err := netlink.AddrAdd(link, ipvsAddress(a)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%s on %s: %w", a, kubeproxy.ProgramDevice, err)
		}
	}
	return nil
}

// unbind takes addresses off the device, and the device away where it has none left. A device that no helper has made
// stays as it is.
func unbind(addresses []netip.Addr) error {
	link, err := netlink.LinkByName(kubeproxy.ProgramDevice)
	var absent netlink.LinkNotFoundError
	switch {
	case errors.As(err, &absent):
		return nil
	case err != nil:
		return fmt.Errorf("the device %s: %w", kubeproxy.ProgramDevice, err)
	case !ownDevice(link):
		return nil
	}
	for _, a := range addresses {
		if err := netlink.AddrDel(link, ipvsAddress(a)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("%s on %s: %w", a, kubeproxy.ProgramDevice, err)
		}
	}
	left, err := addressesOf(kubeproxy.ProgramDevice)
	if err != nil || slices.ContainsFunc(left, func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() }) {
		return err
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("the device %s: %w", kubeproxy.ProgramDevice, err)
	}
	return nil
}
