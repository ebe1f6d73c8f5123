// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// PathConfig is which path a PathKeeper programs on which node, and how.
type PathConfig struct {
	Target cluster.Target
	Node   string
	Mode   string // one of wire.Modes; "": the node's own
	// Scheduler is one of wire.Schedulers of the mode; "": the default.
	Scheduler string
	Log       bool // log each connection, in userspace mode
	TTL       time.Duration
	DryRun    bool // only report what would be done
	// Attached has the path removed when this process ends; otherwise it stays until it expires.
	Attached bool
	By       string // the person who runs the command, for others
	// Allow are the classes of addresses, of Classes, that the path may take or lead to although they are dangerous.
	Allow []string
	// Probes is how many connections of each frontend and origin Verify makes; 0: none but what a mode needs.
	Probes int
	Steps  bool // Verify reports the rules that each packet meets
}

// PathKeeper programs the path of one Service on one node, beside kube-proxy's rules, verifies it, updates it after
// changes of the Service's endpoints, and removes it.
type PathKeeper struct {
	config  PathConfig
	session *Session
	helper  *launch.Helper
	target  cluster.Target
	files   *snapshot.Node // as the node was before
	plan    *plan.Plan
	options wire.ProgramOptions
	facts   *plan.Facts    // of the cluster's addresses
	exposed []plan.Exposed // the plan's addresses whose classes are allowed
}

// KeepPath launches the node's helper, reads the node and plans the path. It changes nothing yet. The caller closes the
// PathKeeper.
func (s *Session) KeepPath(ctx context.Context, c PathConfig) (*PathKeeper, error) {
	helper, err := s.helper(ctx, c.Node)
	if err != nil {
		return nil, NotInspected(err)
	}
	k := &PathKeeper{config: c, session: s, helper: helper, target: c.Target}
	if k.files, err = collect(ctx, helper, snapshot.NodeFiles, nil); err != nil {
		err = NotInspected(err)
	} else if err = k.readBackends(ctx); err == nil {
		err = k.makePlan()
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// Close ends the helper, which removes the path, unless Leave was called.
func (k *PathKeeper) Close() {
	if err := k.helper.Close(); err != nil {
		k.session.Progress.Note("%v", err)
	}
}

// Leave leaves the path on the node until it expires.
func (k *PathKeeper) Leave() { k.helper.Leave() }

// makePlan plans the path according to the Service and the node's configuration, and chooses mode and backend.
func (k *PathKeeper) makePlan() error {
	c := &k.config
	req := plan.Request{
		Services: []*corev1.Service{k.target.Service},
		Select:   func(f expect.Frontend) bool { return k.target.Selects(&f, c.Node) },
	}
	if c.Mode == wire.IPVS { // kube-proxy's own ipvs mode serves no NodePort there
		req.NoLoopback = plan.NoLoopbackInIPVS
	}
	p, left, mode, err := planPaths(k.files, k.session.Objects, req)
	if refusal, ok := errors.AsType[plan.RefusalError](err); ok {
		return Usagef("%s is not programmed on %s: %w", k.target.Name(), c.Node, refusal)
	}
	if err != nil {
		return NotInspected(err)
	}
	for _, l := range left {
		k.session.Progress.Note("left out: %s", l)
	}
	k.plan = p
	k.options = wire.ProgramOptions{
		Mode: c.Mode, Scheduler: c.Scheduler, Log: c.Log, TTL: c.TTL, DryRun: c.DryRun,
		Run: k.session.config.Helper.Run, By: c.By, Follow: c.Attached, Allow: c.Allow,
	}
	if k.options.Mode == "" {
		k.options.Mode = modeOf(&mode)
	}
	if wire.NeedsBackend(k.options.Mode) {
		k.options.Backend = k.backend(&mode)
	}
	return k.reach()
}

// modeOf is the mode of a node, according to its rules, or else to its configuration.
func modeOf(m *report.Mode) string {
	for _, s := range []string{m.Reported, m.Actual, m.Configured} {
		if slices.Contains(wire.Modes, s) {
			return s
		}
	}
	return wire.IPTables
}

// backend is the backend of kube-proxy's rules, or, if it has none, of the other rules.
func (k *PathKeeper) backend(m *report.Mode) string {
	switch m.Backend {
	case wire.BackendNFT, wire.BackendLegacy:
		return m.Backend
	}
	if k.files.Has("iptables-legacy-save.txt") && !k.files.Has("iptables-nft-save.txt") {
		return wire.BackendLegacy
	}
	return wire.BackendNFT
}

// How describes how the path is programmed: "iptables mode (nft)".
func (k *PathKeeper) How() string {
	if k.options.Backend != "" {
		return k.options.Mode + " mode (" + k.options.Backend + ")"
	}
	return k.options.Mode + " mode"
}

// Frontends is the number of the path's frontends: "3 frontends".
func (k *PathKeeper) Frontends() string { return counted(len(k.plan.Frontends), "frontend") }

// Apply has the helper program the path, or report what it would do. The end of the context has no effect until the
// helper has answered: the connection is needed to remove the path.
func (k *PathKeeper) Apply(ctx context.Context) (*wire.ProgramResult, error) {
	encoded, err := json.Marshal(k.plan)
	if err != nil {
		return nil, err
	}
	facts, err := json.Marshal(k.facts)
	if err != nil {
		return nil, err
	}
	r, err := k.helper.Program(context.WithoutCancel(ctx), &wire.ProgramParams{
		Plan: encoded, Facts: facts, ProgramOptions: k.options,
	})
	if err != nil {
		return nil, NotInspected(err)
	}
	k.note(r.Notes)
	if r.Refused != "" {
		refused := safetext.Line(r.Refused, 1000)
		return nil, Usagef("%s is not programmed on %s: %s", k.target.Name(), k.config.Node, refused)
	}
	return r, nil
}

// note shows what the helper says besides its answer.
func (k *PathKeeper) note(notes []string) {
	for _, what := range notes {
		k.session.Progress.Note("node %s: %s", k.config.Node, safetext.Line(what, 1000))
	}
}

// TakeAway has the helper undo its changes for this run, also after the end of the context.
func (k *PathKeeper) TakeAway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.session.config.Helper.Timeout)
	defer cancel()
	undone, err := k.helper.Undo(ctx, wire.UndoMine)
	for _, u := range undone {
		k.note(u.Left)
	}
	return err
}

// proxyProbes are the connections that verify a proxy: its endpoints are in no rule.
const proxyProbes = 5

// plannedFrontend tells the frontends of a plan apart.
type plannedFrontend struct {
	address  netip.AddrPort
	protocol string // TCP, UDP, SCTP
}

// Verify reads the node again, walks packets to the planned frontends, and makes the connections of PathConfig.Probes.
func (k *PathKeeper) Verify(ctx context.Context) (*report.Report, error) {
	served := map[plannedFrontend]bool{}
	for i := range k.plan.Frontends {
		served[plannedFrontend{k.plan.Frontends[i].Address, k.plan.Frontends[i].Protocol}] = true
	}
	request := Request{
		Services: []types.NamespacedName{k.target.Name()}, Matching: true, Steps: k.config.Steps,
		PathsAlone: true, // kube-proxy may well be down
		Select: func(f expect.Frontend) bool {
			planned := plannedFrontend{netip.AddrPortFrom(f.Address, f.Port), string(f.Protocol)}
			return served[planned] && k.target.Selects(&f, k.config.Node)
		},
	}
	probes := k.config.Probes
	if probes == 0 && k.options.Mode == wire.Userspace {
		probes = proxyProbes
	}
	reader := helperReader{k.session.nodes, k.helper}
	s := *k.session
	s.nodes, s.probe = reader, reader.probe
	reports, err := s.Judge(ctx, Task{
		Nodes: []string{k.config.Node}, Probes: probes, Request: func(string) Request { return request },
	})
	if err != nil {
		return nil, err
	}
	return report.Combine(report.KindTrace, ServiceInfo(s.Objects, k.target.Service), reports), nil
}

// Right tells whether every path of a report of Verify is right. With a proxy the rules show only the path to the
// proxy, and connections the rest.
func (k *PathKeeper) Right(r *report.Report) bool {
	switch r.Verdict {
	case report.Match, report.ByDesign, report.Warning:
		return true
	case report.Mismatch:
		return false
	case report.Unknown:
	}
	if k.options.Mode != wire.Userspace {
		return false
	}
	connected := 0
	for i := range r.Nodes {
		for j := range r.Nodes[i].Paths {
			p := &r.Nodes[i].Paths[j]
			if !slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return f.Code == codeProgrammed }) {
				return false
			}
			if o := p.Observed; o != nil {
				refused := slices.ContainsFunc(o.Events, func(e report.Event) bool { return e.Result == report.ResultRefused })
				if o.Error != "" || refused || p.Frontend.Protocol == "TCP" && o.Connected < o.Probes {
					return false
				}
				connected += o.Probes
			}
		}
	}
	return connected > 0
}
