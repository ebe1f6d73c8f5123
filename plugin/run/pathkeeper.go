// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// PathConfig says which path a PathKeeper puts on which node, and how.
type PathConfig struct {
	Target cluster.Target
	Node   string
	Mode   string // one of wire.Modes; "": the node's own
	// Scheduler is one of wire.Schedulers of the mode; "": the default.
	Scheduler string
	Log       bool // log each connection, in userspace mode
	TTL       time.Duration
	DryRun    bool // only say what would be done
	// Attached has the path end with this process; otherwise it stays for its time.
	Attached bool
	By       string // who asks for it, for people
	// Probes is how many connections of each frontend and origin Verify makes; 0: none but what a mode needs.
	Probes int
	Steps  bool // Verify reports the rules that each packet meets
}

// PathKeeper puts the right path of one Service on one node, beside kube-proxy's, sees whether it is right there, keeps
// it in step with the Service's endpoints, and takes it away again.
type PathKeeper struct {
	config  PathConfig
	session *Session
	helper  *launch.Helper
	target  cluster.Target
	files   *snapshot.Node // as the node was before
	plan    *plan.Plan
	options wire.ProgramOptions
}

// KeepPath launches the node's helper, reads the node and plans the path. Nothing is changed yet. The caller closes the
// PathKeeper.
func (s *Session) KeepPath(ctx context.Context, c PathConfig) (*PathKeeper, error) {
	helper, err := s.helper(ctx, c.Node)
	if err != nil {
		return nil, NotInspected(err)
	}
	k := &PathKeeper{config: c, session: s, helper: helper, target: c.Target}
	if k.files, err = collect(ctx, helper, snapshot.NodeFiles); err != nil {
		err = NotInspected(err)
	} else {
		err = k.makePlan()
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// Close ends the helper, and with it what was programmed, unless Leave left it there.
func (k *PathKeeper) Close() {
	if err := k.helper.Close(); err != nil {
		k.session.Progress.Note("%v", err)
	}
}

// Leave leaves the path on the node for its time.
func (k *PathKeeper) Leave() { k.helper.Leave() }

// makePlan makes of the Service and of the node's configuration what is to be programmed, and how.
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
		Run: k.session.config.Helper.Run, By: c.By, Follow: c.Attached,
	}
	if k.options.Mode == "" {
		k.options.Mode = modeOf(&mode)
	}
	if wire.NeedsBackend(k.options.Mode) {
		k.options.Backend = k.backend(&mode)
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

// How says in words how the path is programmed: "iptables mode (nft)".
func (k *PathKeeper) How() string {
	if k.options.Backend != "" {
		return k.options.Mode + " mode (" + k.options.Backend + ")"
	}
	return k.options.Mode + " mode"
}

// Frontends says how many frontends the path has: "3 frontends".
func (k *PathKeeper) Frontends() string { return counted(len(k.plan.Frontends), "frontend") }

// Apply has the helper program the path, or say what it would do. An interrupt is not heeded before the helper has
// answered: the connection is needed to take away what it has programmed.
func (k *PathKeeper) Apply(ctx context.Context) (*wire.ProgramResult, error) {
	encoded, err := json.Marshal(k.plan)
	if err != nil {
		return nil, err
	}
	r, err := k.helper.Program(context.WithoutCancel(ctx), &wire.ProgramParams{Plan: encoded, ProgramOptions: k.options})
	if err != nil {
		return nil, NotInspected(err)
	}
	if r.Refused != "" {
		refused := wire.Printable(r.Refused, 1000)
		return nil, Usagef("%s is not programmed on %s: %s", k.target.Name(), k.config.Node, refused)
	}
	return r, nil
}

// TakeAway has the helper undo what it did for this run, also when the context has ended.
func (k *PathKeeper) TakeAway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.session.config.Helper.Timeout)
	defer cancel()
	_, err := k.helper.Undo(ctx, wire.UndoMine)
	return err
}

// proxyProbes are the connections by which a proxy is seen to work: which endpoints it knows no rule shows.
const proxyProbes = 5

// plannedFrontend tells the frontends of a plan apart.
type plannedFrontend struct {
	address  netip.AddrPort
	protocol string // TCP, UDP, SCTP
}

// Verify reads the node again, walks packets to what was planned, and connects where that is asked for.
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

// Right tells whether every path of a report of Verify is right. With a proxy the rules show the path to it alone, and
// connections the rest.
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
