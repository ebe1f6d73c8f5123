// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Mode.Health.
const (
	HealthHealthy   = "healthy"   // kube-proxy says so
	HealthUnhealthy = "unhealthy" // kube-proxy says so: what it has to write waits too long
	HealthDown      = "down"      // no kube-proxy runs on the node
)

// proxy is what kube-proxy says of itself, and whether it runs.
type proxy struct {
	configured string // the mode that the best source of its configuration names
	configMap  string // the mode that the ConfigMap names, where that is not the best source; "": it names none
	reported   string // by /proxyMode

	processes map[string]int // the number of a process, by name
	listed    bool           // processes were collected
	answers   bool           // at one of its addresses
	health    *proxyHealth
	syncs     map[string]*syncState // by family; "" for a kube-proxy that does not tell them apart
	failures  int                   // of writes, since it started; -1: not known
	pending   int                   // changes seen and not written yet; -1: not known
}

// syncState is how far a family's rules are. Times are those of the node.
type syncState struct {
	queued, synced float64       // Unix time, in seconds, of the last change that was seen and of the last write that succeeded; 0: never
	average        time.Duration // of a write
}

// proxyHealth is what /healthz answers (pkg/proxy/healthcheck/proxy_health.go). Before 1.29 it had neither healthy nor status.
type proxyHealth struct {
	LastUpdated  time.Time `json:"lastUpdated"`
	CurrentTime  time.Time `json:"currentTime"`
	NodeEligible *bool     `json:"nodeEligible"`
	Healthy      *bool     `json:"healthy"`
	Status       map[string]struct {
		LastUpdated time.Time `json:"lastUpdated"`
		Healthy     bool      `json:"healthy"`
	} `json:"status"`
}

// sick says which families wait for too long; ok is false when none does.
func (h *proxyHealth) sick() (families []string, ok bool) {
	for _, f := range slices.Sorted(maps.Keys(h.Status)) {
		if !h.Status[f].Healthy {
			families = append(families, f)
		}
	}
	// A healthy kube-proxy of any version answers with the present as lastUpdated.
	const skew = time.Second
	old := h.Healthy == nil && h.CurrentTime.Sub(h.LastUpdated) > skew
	return families, len(families) > 0 || old || h.Healthy != nil && !*h.Healthy
}

// retryTime is how long kube-proxy waits before it tries again what has failed, unless syncPeriod says otherwise
// (pkg/proxy/apis/config/v1alpha1/defaults.go). What waits for longer does not wait for a sync that is under way.
const retryTime = 30 * time.Second

// late names the families whose changes have waited for too long, by the clock of kube-proxy's own answer.
func (p *proxy) late() []string {
	if p.health == nil {
		return nil
	}
	now := p.health.CurrentTime
	var out []string
	for _, family := range slices.Sorted(maps.Keys(p.syncs)) {
		s := p.syncs[family]
		if s.queued > s.synced && now.Sub(unixTime(s.queued)) > retryTime+2*s.average {
			out = append(out, family)
		}
	}
	return out
}

func unixTime(seconds float64) time.Time {
	return time.Unix(0, int64(seconds*float64(time.Second)))
}

// proxyFiles are what a kube-proxy that does not run leaves unanswered.
var proxyFiles = []string{"proxyMode.txt", "metrics.txt", "configz.json", "healthz.json", "livez.json", "kube-proxy-config.yaml"}

// readProxy reads what kube-proxy says of itself. It is in the same answers as its configuration, which has been read.
func (n *node) readProxy(configured string) error {
	p := &n.proxy
	*p = proxy{configured: configured, failures: -1, pending: -1}
	data, err := n.file("proxyMode.txt")
	if err != nil {
		return err
	}
	p.reported = strings.TrimSpace(string(data))
	list, listed, err := n.files.Processes()
	if err != nil {
		return err
	}
	p.listed, p.processes = listed, map[string]int{}
	for _, x := range list {
		p.processes[x.Name] = x.PID
	}
	for _, f := range proxyFiles[:len(proxyFiles)-1] {
		p.answers = p.answers || n.files.Has(f)
	}
	if data, err = n.file("healthz.json"); err != nil {
		return err
	}
	if len(data) > 0 {
		h := &proxyHealth{}
		if err := json.Unmarshal(data, h); err != nil {
			return fmt.Errorf("node %s: healthz.json is not what kube-proxy answers: %w", n.name, err)
		}
		p.health = h
	}
	n.readSyncs()
	return nil
}

// The metrics of kube-proxy that count failed writes (pkg/proxy/metrics/metrics.go): of iptables-restore, also in ipvs mode, and of
// nft. Restores that only write what has changed (partial) are repeated with everything when they fail.
var failureMetrics = []string{
	"kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
	"kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
}

var pendingMetrics = []string{
	"kubeproxy_sync_proxy_rules_endpoint_changes_pending",
	"kubeproxy_sync_proxy_rules_service_changes_pending",
}

func (n *node) readSyncs() {
	p := &n.proxy
	p.syncs = map[string]*syncState{}
	each := func(metric string, f func(s *syncState, value float64)) {
		n.metricLines(metric, func(labels, value string) {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return
			}
			_, family, _ := strings.Cut(labels, `ip_family="`)
			family, _, _ = strings.Cut(family, `"`)
			if p.syncs[family] == nil {
				p.syncs[family] = &syncState{}
			}
			f(p.syncs[family], v)
		})
	}
	each("kubeproxy_sync_proxy_rules_last_timestamp_seconds", func(s *syncState, v float64) { s.synced = v })
	each("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", func(s *syncState, v float64) { s.queued = v })
	each("kubeproxy_sync_proxy_rules_duration_seconds_sum", func(s *syncState, v float64) { s.average = time.Duration(v * float64(time.Second)) })
	each("kubeproxy_sync_proxy_rules_duration_seconds_count", func(s *syncState, v float64) {
		if v >= 1 {
			s.average /= time.Duration(v)
		}
	})
	p.failures, p.pending = n.total(failureMetrics), n.total(pendingMetrics)
	if len(p.syncs) > 0 {
		p.failures = max(p.failures, 0) // counted by family, so that there is no sample before the first
	}
}

// total adds up samples; -1 where there is none.
func (n *node) total(metrics []string) int {
	sum := -1
	for _, m := range metrics {
		n.metricLines(m, func(_, value string) {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				sum = max(sum, 0) + int(v)
			}
		})
	}
	return sum
}

// withinOthers are processes that have kube-proxy within them.
var withinOthers = []string{"k3s", "k3s-server", "k3s-agent", "kubelite"}

// down tells whether no kube-proxy runs on the node, as far as that is known.
func (p *proxy) down() bool {
	return p.listed && !p.answers && p.processes[proxyProcess] == 0 &&
		!slices.ContainsFunc(withinOthers, func(name string) bool { return p.processes[name] != 0 })
}

// describe writes what is known of kube-proxy into the report's mode.
func (n *node) describe() {
	p, m := &n.proxy, &n.mode
	m.Reported = p.reported
	if p.pending >= 0 {
		m.PendingChanges = &p.pending
	}
	if p.failures >= 0 {
		m.SyncFailures = &p.failures
	}
	switch {
	case p.down():
		m.Health = HealthDown
	case p.health == nil:
		if p.processes[proxyProcess] != 0 && !p.answers && n.reasons["metrics.txt"] != "" {
			m.Health = HealthUnhealthy
		}
	default:
		m.Health = HealthHealthy
		if _, sick := p.health.sick(); sick {
			m.Health = HealthUnhealthy
		}
	}
}

// ownWord finds what is wrong with kube-proxy itself, whatever the rules are.
func (n *node) ownWord() []report.Finding {
	p := &n.proxy
	var out []report.Finding
	add := func(code, subject string, i issue) { out = append(out, n.finding(code, subject, i)) }
	if p.down() {
		add(KubeProxyDown, proxyProcess, issue{
			expected: "a process kube-proxy", actual: "none, and nothing answers at its addresses",
			message:  "no kube-proxy runs on the node: the rules stay as they are, whatever becomes of Services and endpoints",
			evidence: n.unanswered(),
		})
		return out
	}
	if pid := p.processes[proxyProcess]; pid != 0 && !p.answers && n.reasons["metrics.txt"] != "" {
		add(KubeProxyUnhealthy, proxyProcess, issue{
			expected: "an answer at its addresses", actual: "none",
			message:  fmt.Sprintf("kube-proxy runs (process %d) and does not answer: whether it still writes rules is not known", pid),
			evidence: n.unanswered(),
		})
		return out
	}
	out = append(out, n.modeMismatch()...)
	late := p.late()
	if p.health != nil {
		if families, sick := p.health.sick(); sick {
			subject := strings.Join(families, ", ")
			add(KubeProxyUnhealthy, subject, issue{
				expected: "changes written within two sync periods", actual: "/healthz: not healthy",
				message:  "kube-proxy itself says that changes wait for too long: the rules are behind the API",
				evidence: []string{"healthz.json: last updated " + p.health.LastUpdated.UTC().Format(time.RFC3339) + ", read " + p.health.CurrentTime.UTC().Format(time.RFC3339)},
			})
			if late == nil {
				late = families
			}
		} else if e := p.health.NodeEligible; e != nil && !*e {
			add(NodeLeaving, proxyProcess, issue{
				message: "the node is being deleted or marked for it: kube-proxy goes on working, and fails its health check so that load balancers send no more connections here",
			})
		}
	}
	switch {
	case len(late) == 0:
	case p.failures > 0:
		add(RestoreFailing, strings.Join(late, ", "), issue{
			expected: "no failed write", actual: fmt.Sprintf("%d failed since kube-proxy started, and a change waits", p.failures),
			message: "kube-proxy cannot write its rules: nothing changes on this node until the cause is gone; its log has the error", evidence: n.syncEvidence(late),
		})
	default:
		add(NotSyncing, strings.Join(late, ", "), issue{
			expected: "a write soon after a change", actual: "a change has waited for longer than " + retryTime.String(),
			message: "kube-proxy has seen changes and does not write them", evidence: n.syncEvidence(late),
		})
	}
	return out
}

// modeMismatch compares the modes that the configuration and kube-proxy itself name.
func (n *node) modeMismatch() []report.Finding {
	p := &n.proxy
	configured := p.configured
	if configured == "" {
		configured = iptablesDialect.mode // cmd/kube-proxy/app/server_linux.go: the default on Linux
	}
	if p.reported == "" || n.mode.ConfigSource == "defaults" || configured == p.reported {
		return nil
	}
	return []report.Finding{n.finding(ModeMismatch, proxyProcess, issue{
		expected: configured + " (" + n.mode.ConfigSource + ")", actual: p.reported + " (/proxyMode)",
		message: "kube-proxy runs in another mode than it is configured for: it was not restarted since, or fell back because the kernel lacks something (its log says what)",
	})}
}

// configMapDiffers is information for whoever asks for the mode: the ConfigMap names another one than kube-proxy was started with.
func (n *node) configMapDiffers() []report.Finding {
	p := &n.proxy
	if p.reported == "" || p.configMap == "" || p.configMap == p.reported {
		return nil
	}
	f := n.finding(ModeMismatch, proxyProcess, issue{
		expected: p.configMap + " (" + configMapName + ")", actual: p.reported + " (/proxyMode)",
		message: "the ConfigMap names another mode than kube-proxy runs in: it was changed since kube-proxy started, or this kube-proxy is not started with it",
	})
	f.Severity, f.Links = report.Info, nil
	f.Remedy = "nothing to do where kube-proxy on " + n.name + " is started with another configuration on purpose; else: " + n.restart
	return []report.Finding{f}
}

// configMapName is the source of kube-proxy's configuration where neither the process nor its file was read.
const configMapName = "ConfigMap kube-system/kube-proxy"

// unanswered cites why kube-proxy's own files were not read.
func (n *node) unanswered() []string {
	var out []string
	for _, f := range []string{"metrics.txt", "healthz.json"} { // one of each address
		if why := n.reasons[f]; why != "" {
			out = append(out, f+": "+why)
		}
	}
	if pid := n.proxy.processes[proxyProcess]; pid != 0 {
		return append(out, fmt.Sprintf("%s: %d %s", snapshot.ProcessesFile, pid, proxyProcess))
	}
	return append(out, snapshot.ProcessesFile+": no kube-proxy in it")
}

// syncEvidence cites when families were last written and changed.
func (n *node) syncEvidence(families []string) []string {
	var out []string
	for _, f := range families {
		s := n.proxy.syncs[f]
		if s == nil {
			continue
		}
		synced := "never"
		if s.synced > 0 {
			synced = "at " + unixTime(s.synced).UTC().Format(time.RFC3339)
		}
		out = append(out, strings.TrimSpace(f+" ")+fmt.Sprintf(": last written %s, last change seen at %s", synced, unixTime(s.queued).UTC().Format(time.RFC3339)))
	}
	return out
}
