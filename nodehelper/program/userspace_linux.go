// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// userspace forwards connections to endpoints by a proxy in this process, to which rules of iptables redirect them. It
// needs nothing of the kernel but REDIRECT, and ends with the process.
type userspace struct {
	*iptables

	mu      sync.Mutex
	proxies map[string]*proxy // by the plan's name
}

func (u *userspace) check(ctx context.Context, r *Record) error {
	for i := range r.Plan.Frontends {
		f := &r.Plan.Frontends[i]
		switch {
		case f.Protocol == "SCTP":
			return RefusalError(fmt.Sprintf("%s uses SCTP, and the proxy supports TCP and UDP", f.Port))
		case f.Pods != nil && !f.Pods.CIDR.IsValid() && !f.ForPods.Equal(&f.ForOthers):
			return RefusalError(fmt.Sprintf("%s: pods are distinguished by the interface %s here, which a proxy cannot "+
				"see", f.Port,
				f.Pods.Iface))
		}
	}
	return u.iptables.check(ctx, r)
}

// rules returns rules that redirect packets to the ports of a proxy. Source ranges are checked by the proxy.
func (u *userspace) rules(
	p *plan.Plan, v6 bool, until time.Time, port func(*plan.Frontend) string, hooked func(*hook) bool,
) *iptInput {
	l := layoutOf(p, v6)
	nat := &iptTable{name: "nat"}
	top := kubeproxy.ProgramChainPrefix + p.Name + "-NAT"
	nat.chain(top)
	for i := range iptHooks {
		if h := &iptHooks[i]; h.to == "NAT" && !hooked(h) {
			nat.rules = append(nat.rules, iptRule{first: true, chain: h.chain, text: h.rule(p.Name)})
		}
	}
	nat.end(top, until)
	for i := range l.entry {
		e := &l.entry[i]
		protocol := strings.ToLower(e.Protocol)
		nat.add(top, `-d %s -p %s -m %s --dport %d -m comment --comment "%s %s" -j REDIRECT --to-ports %s`,
			host(e.Address.Addr().String(), v6), protocol, protocol, e.Address.Port(), comment(e.Port), e.Kind, port(e.Frontend))
	}
	return &iptInput{tables: []*iptTable{nat}}
}

func (u *userspace) plan(ctx context.Context, r *Record) (*wire.ProgramResult, error) {
	out := &wire.ProgramResult{}
	for _, f := range families {
		if !r.Plan.Has(f.v6) {
			continue
		}
		hooked := func(*hook) bool { return r.Earlier != nil }
		with := func(port string) *iptInput { // the port is of the kernel's choice
			return u.rules(&r.Plan, f.v6, u.until(r), func(*plan.Frontend) string { return port }, hooked)
		}
		var tried, shown bytes.Buffer
		with("1").write(&tried)
		in := with("PORT")
		in.write(&shown)
		t, err := u.find(ctx, f.executable, r.Backend, "-restore")
		if err != nil {
			return nil, err
		}
		if _, err := t.run(ctx, tried.Bytes(), "-w", waitSeconds, "--noflush", "--test"); err != nil {
			return nil, fmt.Errorf("the node rejects the rules: %w", err)
		}
		out.Commands = append(out.Commands, wire.Command{
			Line: f.executable + "-" + r.Backend + "-restore -w " + waitSeconds + " --noflush", Input: shown.String(),
		})
		for _, table := range in.tables {
			out.Added = append(out.Added, table.saved()...)
		}
	}
	return out, nil
}

func (u *userspace) apply(ctx context.Context, r *Record) error {
	u.mu.Lock()
	x := u.proxies[r.Plan.Name]
	u.mu.Unlock()
	if x != nil {
		if err := x.update(&r.Plan); err != nil {
			return err
		}
	} else {
		var log io.Writer
		if r.Log {
			log = os.Stderr
		}
		var err error
		if x, err = startProxy(&r.Plan, r.Scheduler, log); err != nil {
			return err
		}
		u.mu.Lock()
		u.proxies[r.Plan.Name] = x
		u.mu.Unlock()
	}
	for _, f := range families {
		if !r.Plan.Has(f.v6) {
			continue
		}
		hooked := func(*hook) bool { return false }
		if r.Earlier != nil {
			hooked = func(h *hook) bool { return u.hooked(ctx, r, f.v6, f.executable, h) }
		}
		in := u.rules(&r.Plan, f.v6, u.until(r), x.port, hooked)
		if err := u.restore(ctx, f.executable, r.Backend, in); err != nil {
			return err
		}
	}
	return nil
}

// undo removes the rules first: open connections get drainTime to end.
func (u *userspace) undo(ctx context.Context, r *Record) error {
	err := u.iptables.undo(ctx, r)
	u.mu.Lock()
	x := u.proxies[r.Plan.Name]
	delete(u.proxies, r.Plan.Name)
	u.mu.Unlock()
	if x != nil {
		err = errors.Join(err, x.stop(drainTime))
	}
	return err
}
