// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/ipvsadm"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// ipvsMode creates a virtual server for each frontend. An existing one, kube-proxy's, is changed, and restored by undo:
// two cannot have the same address and port.
type ipvsMode struct {
	rules   iptables
	journal journal
	root    string // where the node's file system is
}

// A virtual server has no end.
func (m *ipvsMode) endsByItself(*Record) bool { return false }

func (m *ipvsMode) check(ctx context.Context, r *Record) error {
	if err := hasIPVS(m.root, r); err != nil {
		return err
	}
	for _, f := range families {
		l := layoutOf(&r.Plan, f.v6)
		for i := range l.entry {
			if why := l.oneServer(&l.entry[i]); why != "" {
				return RefusalError(fmt.Sprintf("%s %s/%s cannot be served by IPVS: %s", l.entry[i].Kind, l.entry[i].Address,
					l.entry[i].Protocol, why))
			}
		}
	}
	for name, due := range ipvsSysctls {
		if now, err := readSysctl(name); err == nil && now != due && unix.Access(sysctlFile(name), unix.W_OK) != nil {
			return RefusalError(fmt.Sprintf("the helper may not set net.ipv4.vs.%s to %s: that needs a privileged one "+
				"(--security-profile)", name, due))
		}
	}
	h, err := openIPVS()
	if err != nil {
		return err
	}
	defer h.Close()
	now, err := h.at(&r.Plan)
	if err != nil {
		return err
	}
	for _, v := range now {
		if slices.ContainsFunc(v.Reals, func(s RealServer) bool { return s.Method != 0 }) {
			return RefusalError(fmt.Sprintf("the virtual server %s/%s exists, and does not masquerade: it is not kube-proxy's",
				v.Address, v.Protocol))
		}
	}
	if err := m.checkIdle(r, now); err != nil {
		return err
	}
	if err := checkDevice(); err != nil {
		return err
	}
	for _, a := range vips(&r.Plan) {
		if err := bindable(a); err != nil {
			return err
		}
	}
	return m.rules.check(ctx, r)
}

// checkIdle refuses a scheduler that gives one real server everything, and refuses the connection where that one has no
// weight (ip_vs_dh_schedule).
func (m *ipvsMode) checkIdle(r *Record, now map[serverKey]*VirtualServer) error {
	if schedulerOf(r) != "dh" {
		return nil
	}
	for _, s := range nextOf(r, now).Servers {
		if !s.Gone && s.After.idle() {
			return RefusalError(fmt.Sprintf("the virtual server %s/%s has real servers that are to get no "+
				"connections, and the scheduler dh may select them: use another scheduler", s.After.Address, s.After.Protocol))
		}
	}
	return nil
}

func (m *ipvsMode) remember(ctx context.Context, r *Record) error {
	if err := m.rules.remember(ctx, r); err != nil {
		return err
	}
	now, err := read(&r.Plan)
	if err != nil {
		return err
	}
	update := r.Before.IPVS != nil
	r.Before.IPVS = nextOf(r, now)
	if update {
		return nil
	}
	if r.Before.IPVS.Sysctls, err = m.sysctlsBefore(r); err != nil {
		return err
	}
	r.Before.IPVS.KubeDevice = hasDevice(kubeproxy.IPVSDevice)
	taken, err := addressesOf(kubeproxy.IPVSDevice)
	r.Before.IPVS.Taken = slices.DeleteFunc(vips(&r.Plan), func(a netip.Addr) bool { return !slices.Contains(taken, a) })
	return err
}

// nextOf returns the IPVS of a record's plan: see [IPVS.next].
func nextOf(r *Record, now map[serverKey]*VirtualServer) *IPVS {
	was := r.Before.IPVS
	if was == nil {
		was = &IPVS{}
	}
	return was.next(&r.Plan, schedulerOf(r), now)
}

// schedulerOf is the one that was asked for, or kube-proxy's own.
func schedulerOf(r *Record) string {
	if known := wire.Schedulers[wire.IPVS]; r.Scheduler == "" && slices.Contains(known, r.Plan.Scheduler) {
		return r.Plan.Scheduler
	}
	return r.Scheduler
}

// others are the other records of the mode that can be read.
func (m *ipvsMode) others(r *Record) ([]*Record, error) {
	others, _, err := m.journal.others(r, func(o *Record) bool { return o.Mode == r.Mode && o.Before.IPVS != nil })
	return others, err
}

// sysctlsBefore returns the settings that have to be changed, and their values before any plan changed them.
func (m *ipvsMode) sysctlsBefore(r *Record) (map[string]string, error) {
	others, err := m.others(r)
	if err != nil {
		return nil, err
	}
	before := map[string]string{}
	for name, due := range ipvsSysctls {
		was, err := readSysctl(name)
		if err != nil {
			return nil, err
		}
		for _, o := range others {
			if v, ok := o.Before.IPVS.Sysctls[name]; ok {
				was = v
			}
		}
		if was != due {
			before[name] = was
		}
	}
	return before, nil
}

func (m *ipvsMode) plan(ctx context.Context, r *Record) (*wire.ProgramResult, error) {
	h, err := openIPVS()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	out := &wire.ProgramResult{}
	run := func(format string, args ...any) {
		out.Commands = append(out.Commands, wire.Command{Line: fmt.Sprintf(format, args...)})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Before.IPVS.Sysctls)) {
		now, err := readSysctl(name)
		if err != nil {
			return nil, err
		}
		if due := ipvsSysctls[name]; now != due {
			run("sysctl -w net.ipv4.vs.%s=%s", name, due)
			out.Added = append(out.Added, "net.ipv4.vs."+name+" = "+due)
			out.Removed = append(out.Removed, "net.ipv4.vs."+name+" = "+now)
		}
	}
	for i := range r.Before.IPVS.Servers {
		s := &r.Before.IPVS.Servers[i]
		now, err := h.get(s.After.key())
		if err != nil {
			return nil, err
		}
		for _, c := range changes(now, s.target(now, r)) {
			run("ipvsadm %s", c.text)
		}
		added, removed := difference(saved(now), saved(s.target(now, r)))
		out.Added, out.Removed = append(out.Added, added...), append(out.Removed, removed...)
	}
	unbound, err := m.unbound(r)
	if err != nil {
		return nil, err
	}
	if len(unbound) > 0 && !hasDevice(kubeproxy.ProgramDevice) {
		run("ip link add %s address %s type dummy", kubeproxy.ProgramDevice, deviceMark)
	}
	for _, a := range unbound {
		at := netip.PrefixFrom(a, a.BitLen()).String()
		run("ip address add %s dev %s%s", at, kubeproxy.ProgramDevice, map[bool]string{true: " nodad"}[a.Is6()])
		out.Added = append(out.Added, at+" dev "+kubeproxy.ProgramDevice)
	}
	rules, err := m.rules.plan(ctx, r)
	if err != nil {
		return nil, err
	}
	out.Commands = append(out.Commands, rules.Commands...)
	out.Added, out.Removed = append(out.Added, rules.Added...), append(out.Removed, rules.Removed...)
	return out, nil
}

// target returns what apply changes the existing virtual server into; nil: there is none.
func (s *Served) target(now *VirtualServer, r *Record) *VirtualServer {
	switch {
	case !s.Gone:
		return &s.After
	case s.ours(now, false, r.Earlier):
		return s.Before
	}
	return now
}

// unbound are the addresses of a plan that the node does not have.
func (m *ipvsMode) unbound(r *Record) ([]netip.Addr, error) {
	has, err := addressesOf("")
	return slices.DeleteFunc(vips(&r.Plan), func(a netip.Addr) bool { return slices.Contains(has, a) }), err
}

// apply creates the virtual servers before packets are sent to them. Until then, on a node without ipvs mode, they have
// no effect.
func (m *ipvsMode) apply(ctx context.Context, r *Record) error {
	for _, name := range slices.Sorted(maps.Keys(r.Before.IPVS.Sysctls)) {
		if err := writeSysctl(name, ipvsSysctls[name]); err != nil {
			return err
		}
	}
	if err := m.serve(r); err != nil {
		return err
	}
	unbound, err := m.unbound(r)
	if err == nil {
		err = bind(unbound)
	}
	if err == nil {
		err = m.rules.apply(ctx, r)
	}
	if err == nil && r.Earlier != nil {
		err = m.drop(r)
	}
	if err == nil {
		r.Before.IPVS.Applied = true // Programmer writes it down
	}
	return err
}

// drop removes the addresses from the device that no frontend has any more after an update.
func (m *ipvsMode) drop(r *Record) error {
	others, err := m.others(r)
	if err != nil {
		return err
	}
	return m.unbind(vips(r.Earlier), append(others, &Record{Plan: r.Plan}))
}

// serve makes the virtual servers.
func (m *ipvsMode) serve(r *Record) error {
	h, err := openIPVS()
	if err != nil {
		return err
	}
	defer h.Close()
	for i := range r.Before.IPVS.Servers {
		s := &r.Before.IPVS.Servers[i]
		now, err := h.get(s.After.key())
		if err == nil {
			err = h.make(now, s.target(now, r))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// undo removes in the opposite order, chains without hooks last. As long as packets are sent to them the virtual
// servers stay.
func (m *ipvsMode) undo(ctx context.Context, r *Record) error {
	if err := m.rules.release(ctx, r); err != nil {
		return err
	}
	return errors.Join(m.stop(r), m.rules.remove(ctx, r))
}

// stop restores virtual servers, addresses and sysctls.
func (m *ipvsMode) stop(r *Record) error {
	others, err := m.others(r)
	if err != nil {
		return err
	}
	bound := vips(&r.Plan, r.Earlier)
	if err := checkDevice(); err != nil {
		r.leave(err.Error())
	}
	if !ipvsLoaded() || r.Before.IPVS == nil {
		return m.unbind(bound, others) // the module has been removed, and everything with it
	}
	if err := m.settle(r); err != nil {
		return err // what somebody else has changed since could not be told from what is to go
	}
	errs := []error{m.unbind(bound, others), m.unserve(r)}
	for name, before := range r.Before.IPVS.Sysctls {
		if slices.ContainsFunc(others, func(o *Record) bool { return needs(o, name) }) {
			continue
		}
		now, err := readSysctl(name)
		if err == nil && now == ipvsSysctls[name] {
			err = writeSysctl(name, before)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// needs tells whether a record has changed a setting, or would have.
func needs(r *Record, name string) bool {
	_, ok := r.Before.IPVS.Sysctls[name]
	return ok
}

// settle finds out which virtual servers are unchanged since apply, and records that before the first one is changed:
// after undoing has begun, one that it changed partly cannot be distinguished from one that another program changed.
func (m *ipvsMode) settle(r *Record) error {
	i := r.Before.IPVS
	if !i.Applied || r.Earlier != nil {
		return nil
	}
	// Who has bound an address since has taken the virtual servers over, even where they are as they were left.
	bound, err := addressesOf(kubeproxy.IPVSDevice)
	if err != nil {
		return err
	}
	adopted := hasDevice(kubeproxy.IPVSDevice) && !i.KubeDevice ||
		slices.ContainsFunc(vips(&r.Plan), func(a netip.Addr) bool {
			return slices.Contains(bound, a) && !slices.Contains(i.Taken, a)
		})
	now, err := read(&r.Plan)
	if err != nil {
		return err
	}
	for n := range i.Servers {
		s := &i.Servers[n]
		s.Left = s.Gone || !s.ours(now[s.After.key()], true, nil) || s.Before == nil && adopted
	}
	if adopted {
		i.Sysctls = nil // kube-proxy needs them from now on
	}
	i.Applied = false
	return m.journal.write(r)
}

// unserve restores the virtual servers.
func (m *ipvsMode) unserve(r *Record) error {
	h, err := openIPVS()
	if err != nil {
		return err
	}
	defer h.Close()
	for n := range r.Before.IPVS.Servers {
		s := &r.Before.IPVS.Servers[n]
		if s.Gone && r.Earlier == nil {
			continue // restored by the update that it is not in any more
		}
		now, err := h.get(s.After.key())
		if err == nil && s.ours(now, false, r.Earlier) {
			err = h.make(now, s.Before)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unbind removes addresses from the device, unless another record has them, too, and the device with the last one.
func (m *ipvsMode) unbind(addresses []netip.Addr, others []*Record) error {
	kept := make([]*plan.Plan, 0, 2*len(others))
	for _, o := range others {
		kept = append(kept, &o.Plan, o.Earlier)
	}
	keep := vips(kept...)
	return unbind(slices.DeleteFunc(addresses, func(a netip.Addr) bool { return slices.Contains(keep, a) }))
}

// read returns the virtual servers at the frontends of a plan.
func read(p *plan.Plan) (map[serverKey]*VirtualServer, error) {
	h, err := openIPVS()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.at(p)
}

// change is a change of a virtual server: the arguments of ipvsadm for it, and the function that makes it.
type change struct {
	text string
	do   func(*ipvsHandle) error
}

// changes returns the changes from one virtual server to another; nil stands for none. Real servers are added before
// others are removed, so that there is always one.
func changes(now, due *VirtualServer) []change {
	var out []change
	add := func(verb, line string, do func(*ipvsHandle) error) { out = append(out, change{verb + line[2:], do}) }
	if due == nil {
		if now != nil {
			s := now.service()
			out = append(out, change{"-D " + ipvsadm.Name(s), func(h *ipvsHandle) error { return h.DelService(s) }})
		}
		return out
	}
	s := due.service()
	was := VirtualServer{}
	if now == nil {
		add("-A", ipvsadm.Virtual(s), func(h *ipvsHandle) error { return h.NewService(s) })
	} else {
		was = *now
		if bare, is := due.settings(), was.settings(); !bare.equal(&is) {
			add("-E", ipvsadm.Virtual(s), func(h *ipvsHandle) error { return h.UpdateService(s) })
		}
	}
	for i := range due.Reals {
		d := due.Reals[i].destination()
		switch r := was.real(due.Reals[i].Address); {
		case r == nil:
			add("-a", ipvsadm.Real(s, d), func(h *ipvsHandle) error { return h.NewDestination(s, d) })
		case *r != due.Reals[i]:
			add("-e", ipvsadm.Real(s, d), func(h *ipvsHandle) error { return h.UpdateDestination(s, d) })
		}
	}
	for i := range was.Reals {
		if due.real(was.Reals[i].Address) == nil {
			d := was.Reals[i].destination()
			out = append(out, change{
				fmt.Sprintf("-d %s -r %s", ipvsadm.Name(s), was.Reals[i].Address),
				func(h *ipvsHandle) error { return h.DelDestination(s, d) },
			})
		}
	}
	return out
}

// saved is a virtual server as ipvsadm-save -n shows it; "" for none.
func saved(v *VirtualServer) []string {
	if v == nil {
		return nil
	}
	s := v.service()
	lines := []string{ipvsadm.Virtual(s)}
	for i := range v.Reals {
		lines = append(lines, ipvsadm.Real(s, v.Reals[i].destination()))
	}
	return lines
}
