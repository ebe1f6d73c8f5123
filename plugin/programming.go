// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// programming is one run of the command program.
type programming struct {
	*programOptions
	sc      *scene
	session *launch.Session
	target  cluster.Target
	name    string         // of the node
	files   *snapshot.Node // as it was before
	planned *plan.Plan
	params  wire.ProgramParams // but for the plan
	served  map[string]bool    // the frontends of the plan, by address, port and protocol
}

func (w *programming) run(ctx context.Context) error {
	if err := w.sc.readObjects(ctx, "the cluster's Services"); err != nil {
		return err
	}
	var err error
	if w.target, err = cluster.Find(w.sc.objects, w.ns, w.ref); err != nil {
		return usagef("%w", err)
	}
	if err := w.findNode(); err != nil {
		return err
	}
	if done, err := w.helper.dry(w.shared, w.sc, []string{w.name}); done || err != nil {
		return err
	}
	if err := w.sc.readPods(ctx, cluster.Pods{Nodes: []string{w.name}}); err != nil {
		return err
	}
	if w.session, err = w.sc.nodes.(programmer).Session(ctx, w.name); err != nil { //nolint:forcetypeassert // a cluster's are
		return codeError{ExitNotInspected, err}
	}
	defer w.close()
	if w.files, err = collect(ctx, w.session, w.sc.files); err != nil {
		return codeError{ExitNotInspected, err}
	}
	if err := w.plan(); err != nil {
		return err
	}
	if w.dry() {
		return w.showPlan(ctx)
	}
	w.sc.progress.done()
	if err := w.ask(fmt.Sprintf("Program %s on node %s, in %s, for %v?", w.target.Name(), w.name, w.how(), w.ttl)); err != nil {
		return err
	}
	return w.program(ctx)
}

// findNode settles the name of the node.
func (w *programming) findNode() error {
	known := w.sc.nodes.Known(w.sc.objects)
	if w.helper.local && w.node == "" {
		if len(known) != 1 {
			return usagef("this machine is none of the cluster's nodes by its name and addresses: say which with --node")
		}
		w.name = known[0]
		return nil
	}
	w.name = w.node
	for _, n := range w.sc.objects.Nodes {
		if n.Name == w.name {
			return nil
		}
	}
	if len(w.sc.objects.Nodes) > 0 {
		return usagef("there is no node %q: the cluster has %s", w.name, shorten(nodeNames(w.sc.objects)))
	}
	return nil
}

// close ends the helper, and with it what was programmed, unless it was left to itself before.
func (w *programming) close() {
	if err := w.session.Close(); err != nil {
		w.sc.progress.note("%v", err)
	}
}

// plan makes of the Service and of the node's configuration what is to be programmed, and how.
func (w *programming) plan() error {
	req := plan.Request{
		Services: []*corev1.Service{w.target.Service},
		Select:   func(f expect.Frontend) bool { return w.target.Selects(&f, w.name) },
	}
	if w.mode == wire.IPVS { // kube-proxy's own ipvs mode serves no NodePort there
		req.NoLoopback = plan.NoLoopbackInIPVS
	}
	p, left, mode, err := diagnose.Read(w.files).Plan(w.sc.objects, req)
	var refusal plan.RefusalError
	switch {
	case errors.As(err, &refusal):
		return usagef("%s is not programmed on %s: %w", w.target.Name(), w.name, refusal)
	case err != nil:
		return codeError{ExitNotInspected, err}
	}
	for _, l := range left {
		w.sc.progress.note("left out: %s", l)
	}
	w.planned = p
	w.params = wire.ProgramParams{
		ProgramOptions: wire.ProgramOptions{
			Mode: w.mode, Scheduler: w.scheduler, Log: w.log, TTL: w.ttl, DryRun: w.dry(), Run: w.sc.run, By: whoami(), Follow: w.staying(),
		},
	}
	if w.params.Mode == "" {
		w.params.Mode = modeOf(&mode)
	}
	if wire.NeedsBackend(w.params.Mode) {
		w.params.Backend = w.backend(&mode)
	}
	w.served = map[string]bool{}
	for i := range p.Frontends {
		w.served[p.Frontends[i].Address.String()+p.Frontends[i].Protocol] = true
	}
	return nil
}

// modeOf is the mode that a node is in, by what is there, or else by what is configured.
func modeOf(m *report.Mode) string {
	for _, s := range []string{m.Reported, m.Actual, m.Configured} {
		if slices.Contains(wire.Modes, s) {
			return s
		}
	}
	return wire.IPTables
}

// backend is that of kube-proxy's rules; where it has none, that of the rules that there are.
func (w *programming) backend(m *report.Mode) string {
	switch m.Backend {
	case wire.BackendNFT, wire.BackendLegacy:
		return m.Backend
	}
	if w.files.Has("iptables-legacy-save.txt") && !w.files.Has("iptables-nft-save.txt") {
		return wire.BackendLegacy
	}
	return wire.BackendNFT
}

func (w *programming) how() string {
	if w.params.Backend != "" {
		return w.params.Mode + " mode (" + w.params.Backend + ")"
	}
	return w.params.Mode + " mode"
}

// send sends the plan to the helper.
func (w *programming) send(ctx context.Context) (*wire.ProgramResult, error) {
	encoded, err := json.Marshal(w.planned)
	if err != nil {
		return nil, err
	}
	params := w.params
	params.Plan = encoded
	r, err := w.session.Program(ctx, &params)
	if err != nil {
		return nil, codeError{ExitNotInspected, err}
	}
	if r.Refused != "" {
		return nil, usagef("%s is not programmed on %s: %s", w.target.Name(), w.name, wire.Printable(r.Refused, 1000))
	}
	return r, nil
}

// showPlan prints what would be done.
func (w *programming) showPlan(ctx context.Context) error {
	r, err := w.send(ctx)
	if err != nil {
		return err
	}
	w.sc.progress.done()
	if r.What == wire.Unchanged {
		fmt.Fprintf(w.Out, "%s is programmed on node %s just so, by %s, until %s: nothing would be done\n", w.target.Name(), w.name, wire.Printable(r.By, 100), when(r.Expires))
		return nil
	}
	fmt.Fprintf(w.Out, "# node %s, %s: what would be run\n", w.name, w.how())
	for _, c := range r.Commands {
		if c.Input == "" {
			fmt.Fprintln(w.Out, c.Line)
			continue
		}
		fmt.Fprintf(w.Out, "%s <<'EOF'\n%sEOF\n", c.Line, c.Input)
	}
	fmt.Fprintf(w.Out, "\n# what would differ from now\n")
	for _, l := range r.Removed {
		fmt.Fprintln(w.Out, "-"+l)
	}
	for _, l := range r.Added {
		fmt.Fprintln(w.Out, "+"+l)
	}
	return nil
}

func when(t time.Time) string { return t.UTC().Format("15:04:05 MST") }

// program programs, verifies, and leaves the path for its time.
func (w *programming) program(ctx context.Context) error {
	r, err := w.send(ctx)
	if err != nil {
		return err
	}
	if r.What == wire.Unchanged {
		w.sc.progress.note("%s is programmed on node %s just so already, by %s, until %s: nothing was changed", w.target.Name(), w.name, wire.Printable(r.By, 100), when(r.Expires))
	}
	got, err := w.verify(ctx)
	if err != nil {
		return errors.Join(err, w.takeBack(ctx))
	}
	if !w.right(got) {
		if err := w.takeBack(ctx); err != nil {
			return codeError{ExitNotInspected, err}
		}
		w.sc.progress.note("the path is not right with what was programmed, so that was taken back")
		return w.show(got, "")
	}
	if r.What != wire.Unchanged {
		w.sc.progress.note("%s is programmed on node %s, in %s: %s, until %s", w.target.Name(), w.name, w.how(), counted(len(w.planned.Frontends), "frontend"), when(r.Expires))
	}
	if !w.staying() {
		if r.What != wire.Unchanged {
			w.session.Leave()
		}
		return w.show(got, fmt.Sprintf("to end it before its time: %s cleanup --running --node %s%s", name, w.name, w.again()))
	}
	if err := w.show(got, ""); err != nil {
		return err
	}
	return w.stay(ctx, r.Expires)
}

// proxyProbes are the connections by which a proxy is seen to work: which endpoints it knows no rule shows.
const proxyProbes = 5

// right tells whether every path is right. With a proxy the rules show the way to it alone, and connections the rest.
func (w *programming) right(r *report.Report) bool {
	switch r.Verdict {
	case report.Match, report.ByDesign, report.Warning:
		return true
	case report.Mismatch:
		return false
	case report.Unknown:
	}
	if w.params.Mode != wire.Userspace {
		return false
	}
	connected := 0
	for i := range r.Nodes {
		for k := range r.Nodes[i].Paths {
			p := &r.Nodes[i].Paths[k]
			if !slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return f.Code == diagnose.Programmed }) {
				return false
			}
			if o := p.Observed; o != nil {
				refused := slices.ContainsFunc(o.Events, func(e string) bool { return strings.Contains(e, snapshot.ProbeRefused) })
				if o.Error != "" || refused || p.Frontend.Protocol == "TCP" && o.Connected < o.Probes {
					return false
				}
				connected += o.Probes
			}
		}
	}
	return connected > 0
}

// takeBack has the helper undo what it did for this run.
func (w *programming) takeBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.helper.timeout)
	defer cancel()
	_, err := w.session.Undo(ctx, wire.UndoMine)
	return err
}

// verify reads the node again, walks packets to what was planned, and connects where that is asked for.
func (w *programming) verify(ctx context.Context) (*report.Report, error) {
	request := diagnose.Request{
		Services: []types.NamespacedName{w.target.Name()}, Matching: true, Steps: w.printer.Steps(), PathsAlone: true, // kube-proxy may well be down
		Select: func(f expect.Frontend) bool {
			return w.target.Selects(&f, w.name) && w.served[netip.AddrPortFrom(f.Address, f.Port).String()+string(f.Protocol)]
		},
	}
	sc := *w.sc
	sc.nodes = sessionInspector{w.sc.nodes, w.session, w.sc.files}
	switch {
	case w.live:
		sc.probes = w.probes
	case w.params.Mode == wire.Userspace:
		sc.probes = proxyProbes
	}
	reports, err := sc.judge(ctx, []string{w.name}, func(string) diagnose.Request { return request })
	if err != nil {
		return nil, err
	}
	return report.Combine(report.KindTrace, cluster.Info(sc.objects, w.target.Service), reports), nil
}

// show prints the report. The exit code is that of programming: which endpoints a proxy knows the report may leave open.
func (w *programming) show(r *report.Report, next string) error {
	err := conclude(w.shared, w.printer, r, print.View{Now: w.sc.now(), Namespace: w.target.Service.Namespace, Next: next})
	if c, ok := errors.AsType[codeError](err); ok && c.error == nil && c.code == ExitNotInspected && w.right(r) {
		return nil
	}
	return err
}

// again are the flags that lead to the same cluster.
func (w *programming) again() string {
	var b strings.Builder
	w.kubeFlags(func(name, value string) { fmt.Fprintf(&b, " --%s %s", name, value) })
	if w.flags.Changed("helper-namespace") {
		fmt.Fprintf(&b, " --helper-namespace %s", w.helper.namespace)
	}
	return b.String()
}

// sessionInspector inspects a node by a helper that is there and stays.
type sessionInspector struct {
	Inspector
	session *launch.Session
	files   []string
}

func (s sessionInspector) Inspect(ctx context.Context, _ string) (*snapshot.Node, error) {
	return collect(ctx, s.session, s.files)
}

func (s sessionInspector) Release(string) {}

func (s sessionInspector) Probe(ctx context.Context, _ string, targets []snapshot.ProbeTarget) ([]byte, error) {
	return s.session.Probe(ctx, targets)
}
