// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// orphanDevice finds the device of ipvs mode, where no record is of that mode, and the virtual servers at its
// addresses. Those at addresses of the node itself, of NodePorts, cannot be told from others'.
func (*Programmer) orphanDevice(_ context.Context, records *snapshot.Journal) ([]*orphan, error) {
	link, err := netlink.LinkByName(kubeproxy.ProgramDevice)
	var absent netlink.LinkNotFoundError
	switch {
	case errors.As(err, &absent), err == nil && records.HasMode(wire.IPVS):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the device %s: %w", kubeproxy.ProgramDevice, err)
	}
	o := &orphan{}
	o.ID = "ipvs " + kubeproxy.ProgramDevice
	if why := foreignDevice(link); why != "" {
		o.doubt("%s", why)
	}
	list, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("the addresses of %s: %w", kubeproxy.ProgramDevice, err)
	}
	var bound []netip.Addr
	for i := range list {
		a, ok := netip.AddrFromSlice(list[i].IP)
		if !ok || a.IsLinkLocalUnicast() {
			continue
		}
		a = a.Unmap()
		bound = append(bound, a)
		if ones, bits := list[i].Mask.Size(); ones != bits {
			o.doubt("%s/%d is bound to it, and program binds addresses alone", a, ones)
		}
	}
	servers, err := serversAt(bound)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		if s.foreign != "" {
			o.doubt("the virtual server %s has %s", s.name, s.foreign)
		}
	}
	o.What = fmt.Sprintf("IPVS: the device %s with %d addresses, and %d virtual servers at them", kubeproxy.ProgramDevice,
		len(bound), len(servers))
	o.remove = func(context.Context) error { return removeDevice(link, servers) }
	return []*orphan{o}, nil
}

// orphanServer is a virtual server at an address of the device.
type orphanServer struct {
	service *ipvs.Service
	name    string
	foreign string // what it has that no virtual server of this package has
}

// serversAt lists the virtual servers at addresses, but for those that kube-proxy has bound, too.
func serversAt(bound []netip.Addr) ([]orphanServer, error) {
	if !ipvsLoaded() || len(bound) == 0 {
		return nil, nil
	}
	theirs, err := addressesOf(kubeproxy.IPVSDevice)
	if err != nil {
		return nil, err
	}
	h, err := openIPVS()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	all, err := h.GetServices()
	if err != nil {
		return nil, fmt.Errorf("the virtual servers: %w", err)
	}
	var out []orphanServer
	for _, s := range all {
		a, ok := netip.AddrFromSlice(s.Address)
		if a = a.Unmap(); !ok || s.FWMark != 0 || !slices.Contains(bound, a) || slices.Contains(theirs, a) {
			continue
		}
		x := orphanServer{service: s, name: netip.AddrPortFrom(a, s.Port).String()}
		reals, err := h.GetDestinations(s)
		if err != nil {
			return nil, fmt.Errorf("the real servers of %s: %w", x.name, err)
		}
		if slices.ContainsFunc(reals, func(d *ipvs.Destination) bool { return d.ConnectionFlags&ipvs.ConnFwdMask != 0 }) {
			x.foreign = "a real server that is not masqueraded"
		}
		out = append(out, x)
	}
	return out, nil
}

// removeDevice removes the device, and then the virtual servers: without the addresses nothing reaches them.
func removeDevice(link netlink.Link, servers []orphanServer) error {
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("the device %s: %w", kubeproxy.ProgramDevice, err)
	}
	if len(servers) == 0 {
		return nil
	}
	h, err := openIPVS()
	if err != nil {
		return err
	}
	defer h.Close()
	var errs []error
	for _, s := range servers {
		if err := h.DelService(s.service); err != nil {
			errs = append(errs, fmt.Errorf("the virtual server %s: %w", s.name, err))
		}
	}
	return errors.Join(errs...)
}
