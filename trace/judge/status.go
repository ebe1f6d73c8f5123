// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Findings about kube-proxy itself, whatever the rules are.
const (
	KubeProxyDown      = "KubeProxyDown"
	KubeProxyUnhealthy = "KubeProxyUnhealthy"
	NodeLeaving        = "NodeLeaving"
	NotSyncing         = "NotSyncing"
	RestoreFailing     = "RestoreFailing"
	ModeMismatch       = "ModeMismatch"
)

var (
	_ = register(kind{
		code: KubeProxyDown, severity: warning, scope: onNode, by: proxyStatus,
		remedy: advice("find out why kube-proxy does not run on {node}",
			command{find: true}),
		issues: []string{"kubernetes/kubernetes#35641", "kubernetes/kubernetes#119265"},
	})
	_ = register(kind{
		code: KubeProxyUnhealthy, severity: warning, scope: onNode, by: proxyStatus,
		remedy: advice("look at kube-proxy's log on {node} for what it cannot write, then restart it", restartProxy),
		issues: []string{"kubernetes/kubernetes#112604"},
	})
	_ = register(kind{code: NodeLeaving, severity: note, scope: onNode, by: proxyStatus})
	_ = register(kind{
		code:     NotSyncing,
		severity: warning,
		scope:    onNode,
		by:       proxyStatus,
		remedy: advice("look at kube-proxy's log on {node} (its watch of the API may hang, or the xtables lock may be "+
			"taken), then restart it", restartProxy),
		issues: []string{"kubernetes/kubernetes#76338", "kubernetes/kubernetes#107266", "kubernetes/kubernetes#128886"},
	})
	_ = register(kind{
		code:     RestoreFailing,
		severity: warning,
		scope:    onNode,
		by:       proxyStatus,
		remedy: advice("read the error in kube-proxy's log on {node}: an address of the wrong family, a kernel module, " +
			"another program's lock, or versions that do not fit"),
		issues: []string{"kubernetes/kubernetes#112604", "kubernetes/kubernetes#73157", "kubernetes/kubernetes#80462"},
	})
	_ = register(kind{
		code:     ModeMismatch,
		severity: warning,
		scope:    onNode,
		by:       proxyStatus,
		remedy: advice("look at the first lines of kube-proxy's log on {node}: they say which mode it chose and why; then "+
			"restart it", restartProxy),
		issues: []string{fallback},
	})
)

// fallback is the issue of kube-proxies that fall back to iptables mode without ip_vs.
const fallback = "kubernetes/kubernetes#66454"

// The values of report.Mode.Health.
const (
	healthy   = "healthy"   // kube-proxy says so
	unhealthy = "unhealthy" // kube-proxy says so: what it has to write waits too long; or it does not answer
	down      = "down"      // no kube-proxy runs on the node
	draining  = "draining"  // kube-proxy says that the node is being deleted, and nothing of changes that wait
)

// silent tells whether kube-proxy runs and does not answer.
func (n *node) silent() bool {
	return n.Proxy.Processes[kubeproxy.Process] != 0 && !n.Proxy.Responds && n.Unread(snapshot.MetricsFile) != ""
}

// showStatus writes what is known of kube-proxy into the report's mode.
func (n *node) showStatus() {
	p, m := &n.Proxy, &n.shown
	if err := checkMode(p.Reported); err == nil {
		n.reported = p.Reported
	} else {
		n.refused = append(n.refused, refusedFile{snapshot.ProxyModeFile, err})
	}
	m.Reported = n.reported
	m.PendingChanges, m.SyncFailures = known(p.Pending), known(p.Failures)
	for _, family := range slices.Sorted(maps.Keys(p.Syncs)) {
		if x := p.Syncs[family]; family != "" {
			m.Families = append(m.Families, report.FamilySync{
				Family: strings.Clone(family), LastSync: x.LastSync(), Waits: x.Waits(), SyncFailures: known(x.Failures),
			})
		}
	}
	switch {
	case p.Down():
		m.Health = down
	case n.silent():
		m.Health = unhealthy
	default:
		m.Health = healthOf(p)
	}
}

// healthOf names the health of a kube-proxy by its own responses; "" where they do not tell.
func healthOf(p *kubeproxy.Status) string {
	by, _ := p.Unhealthy()
	switch {
	case by != nil:
		return unhealthy
	case p.Healthz.Draining():
		return draining
	case p.Healthy():
		return healthy
	}
	return ""
}

// known returns a copy of a count; nil for one that is not known.
func known(count int) *int {
	if count < 0 {
		return nil
	}
	return &count
}

// proxyStatus finds what is wrong with kube-proxy itself.
var proxyStatus = &detector{stage: stageStatus, node: func(n *node) []issue {
	p := &n.Proxy
	if p.Down() {
		return []issue{
			{
				code:     KubeProxyDown,
				subject:  kubeproxy.Process,
				expected: "a process kube-proxy",
				actual:   "none, and nothing answers at its addresses",
				message:  "no kube-proxy runs on the node: the rules stay as they are, whatever happens to Services and endpoints",
				evidence: say(n.unanswered()...),
			},
		}
	}
	if n.silent() {
		return []issue{{
			code: KubeProxyUnhealthy, subject: kubeproxy.Process, expected: "an answer at its addresses", actual: "none",
			message: fmt.Sprintf("kube-proxy runs (process %d) and does not answer: whether it still writes rules is not known",
				p.Processes[kubeproxy.Process]),
			evidence: say(n.unanswered()...),
		}}
	}
	out := n.modeMismatch()
	late := p.Overdue()
	if h, families := p.Unhealthy(); h != nil {
		file := snapshot.HealthzFile
		if h == p.Livez {
			file = snapshot.LivezFile
		}
		out = append(out, issue{
			code:     KubeProxyUnhealthy,
			subject:  strings.Join(families, ", "),
			expected: "changes written within two sync periods",
			actual:   "/" + strings.TrimSuffix(file, ".json") + ": not healthy",
			message:  "kube-proxy itself reports that changes have been pending for too long: the rules are behind the API",
			evidence: say(fmt.Sprintf("%s: last updated %s, read %s", file,
				h.LastUpdated.UTC().Format(time.RFC3339), h.CurrentTime.UTC().Format(time.RFC3339))),
		})
		if late == nil {
			late = families
		}
	}
	if p.Healthz.Draining() {
		out = append(out, issue{
			code: NodeLeaving, subject: kubeproxy.Process, expected: "nodeEligible true", actual: "nodeEligible false",
			message: "the node is draining: it is being deleted or marked for deletion; kube-proxy keeps working, and fails " +
				"its health check so that load balancers send no new connections here",
			evidence: say(drained(p)...),
		})
	}
	return append(out, n.waiting(late)...)
}}

// drained cites what kube-proxy says on a node that drains.
func drained(p *kubeproxy.Status) []string {
	out := []string{snapshot.HealthzFile + ": nodeEligible false"}
	if p.Livez == nil {
		return out
	}
	if by, _ := p.Unhealthy(); by == nil {
		out = append(out, snapshot.LivezFile+": healthy")
	}
	return out
}

// waiting says why changes of families wait for too long.
func (n *node) waiting(late []string) []issue {
	if len(late) == 0 {
		return nil
	}
	is := issue{code: NotSyncing, subject: strings.Join(late, ", "), evidence: say(n.syncEvidence(late)...)}
	if failed := n.Proxy.FailuresOf(late); failed > 0 {
		is.code, is.expected = RestoreFailing, "no failed write"
		is.actual = fmt.Sprintf("%d failed since kube-proxy started, and a change waits", failed)
		is.message = "kube-proxy cannot write its rules: nothing changes on this node until the cause is gone; its log has " +
			"the error"
		return []issue{is}
	}
	is.expected, is.actual = "a write soon after a change", "a change has waited for longer than "+
		kubeproxy.RetryTime.String()
	is.message = "kube-proxy has seen changes and does not write them"
	return []issue{is}
}

// modeMismatch compares the modes that the configuration and kube-proxy itself name.
func (n *node) modeMismatch() []issue {
	configured := n.shown.Configured
	if configured == "" {
		configured = modes[0].name()
	}
	if n.reported == "" || n.shown.ConfigSource == string(kubeproxy.NotKnown) || configured == n.reported {
		return nil
	}
	return []issue{
		{
			code:     ModeMismatch,
			subject:  kubeproxy.Process,
			expected: configured + " (" + n.shown.ConfigSource + ")",
			actual:   n.reported + " (/proxyMode)",
			message:  "kube-proxy runs in another mode than it is configured for: " + n.anotherMode(),
		},
	}
}

// restartIf is a remedy whose commands are to be run under a condition alone.
func (n *node) restartIf(condition string, r remedy) report.Remedy {
	out := n.advise(r, &issue{})
	for i := range out.Commands {
		when := &out.Commands[i].When
		if *when != "" {
			*when = ", " + *when
		}
		*when = "only if " + condition + *when
	}
	return out
}

// anotherMode says how kube-proxy can come to run in another mode than the configured one.
func (n *node) anotherMode() string {
	if concerns(fallback, n.shown.KubeProxyVersion) {
		return "it was not restarted since, or fell back because the kernel lacks something (its log says what)"
	}
	return "it was not restarted since, or is not started with that configuration"
}

// configMapDiffers is information for whoever asks for the mode: the ConfigMap names another one than kube-proxy was
// started with.
func (n *node) configMapDiffers() []issue {
	c := n.stored
	if c == nil || n.shown.ConfigSource == c.Source || n.reported == "" || c.Mode == "" ||
		c.Mode == n.reported {
		return nil
	}
	return []issue{
		{
			code:     ModeMismatch,
			subject:  kubeproxy.Process,
			severity: note,
			unlinked: true,
			expected: c.Mode + " (" + c.Source + ")",
			actual:   n.reported + " (/proxyMode)",
			message: "the ConfigMap names another mode than kube-proxy runs in: it was changed since kube-proxy started, " +
				"or this kube-proxy is not started with it",
			remedy: n.restartIf("it is meant to use this ConfigMap", advice("if kube-proxy on {node} is meant to use another "+
				"configuration, there is nothing to do", restartProxy)),
		},
	}
}

// unanswered cites why kube-proxy's own files were not read.
func (n *node) unanswered() []string {
	var out []string
	for _, f := range []string{snapshot.MetricsFile, snapshot.HealthzFile} { // one of each address
		if why := n.Unread(f); why != "" {
			out = append(out, f+": "+why)
		}
	}
	if pid := n.Proxy.Processes[kubeproxy.Process]; pid != 0 {
		return append(out, fmt.Sprintf("%s: %d %s", snapshot.ProcessesFile, pid, kubeproxy.Process))
	}
	return append(out, snapshot.ProcessesFile+": no kube-proxy in it")
}

// syncEvidence cites when families were last written and changed.
func (n *node) syncEvidence(families []string) []string {
	var out []string
	for _, f := range families {
		s := n.Proxy.Syncs[f]
		if s == nil {
			continue
		}
		synced := "never"
		if s.Synced > 0 {
			synced = "at " + kubeproxy.UnixTime(s.Synced).UTC().Format(time.RFC3339)
		}
		out = append(out, strings.TrimSpace(f+" ")+fmt.Sprintf(": last written %s, last change seen at %s",
			synced, kubeproxy.UnixTime(s.Queued).UTC().Format(time.RFC3339)))
	}
	return out
}

// NotCollected says what was not read, and what is not judged for it.
const NotCollected = "NotCollected"

var _ = register(kind{code: NotCollected, severity: note, scope: onNode, by: coverage})

// coverage says what the judgement does not cover because the snapshot does not hold it.
var coverage = &detector{stage: stageCoverage, node: func(n *node) []issue {
	var out []issue
	add := func(subject, message string) {
		out = append(out, issue{code: NotCollected, subject: subject, message: message})
	}
	for _, f := range nodestate.Families {
		if n.unread[f] != "" && n.survey.hasFrontends[f] {
			add(f.String(), n.unread[f])
		} else if x := n.NotAll[f]; x != nil && n.survey.hasFrontends[f] {
			add(f.String(), x.String())
		}
	}
	out = append(out, n.mode.notCollected(n.State)...)
	if !n.HasNFT() && !n.ListsUnread() {
		add(
			snapshot.NFTFile,
			"nftables tables beside iptables' own were not collected: if there are any, they are not judged",
		)
	}
	if n.shown.ConfigSource == string(kubeproxy.NotKnown) {
		message := "it was not collected (configz.json, ConfigMap): it is taken from what the rules show"
		if open := n.unsettled(); open != "" {
			message += ", which leaves open: " + open
		}
		add("kube-proxy's configuration", message)
	}
	return out
}}
