// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// metric is the declaration of a metric. All of them are in [declared], which docs/metrics.md lists.
type metric struct {
	name   string
	kind   string // gauge, counter, histogram
	help   string
	labels []string
}

// The names of the metrics.
const (
	pathsMetric       = "svcproxy_paths"
	findingsMetric    = "svcproxy_findings"
	foldedMetric      = "svcproxy_findings_folded"
	settlingMetric    = "svcproxy_findings_settling"
	settlingForMetric = "svcproxy_findings_settling_seconds"
	nodeMetric        = "svcproxy_node_info"
	unmeasuredMetric  = "svcproxy_api_to_kernel_unmeasured_total"
	latencyMetric     = "svcproxy_api_to_kernel_seconds"
	readMetric        = "svcproxy_last_full_pass_timestamp_seconds"
	durationMetric    = "svcproxy_last_full_pass_duration_seconds"
	judgedMetric      = "svcproxy_passes_total"
	failuresMetric    = "svcproxy_pass_failures_total"
	cpuMetric         = "svcproxy_passes_cpu_seconds_total"
	judgingMetric     = "svcproxy_paths_judged_total"
	unreadMetric      = "svcproxy_unread_files"
	notJudgedMetric   = "svcproxy_services_not_judged"
	notHeldMetric     = "svcproxy_services_not_held"
	pollingMetric     = "svcproxy_polling_resolution_seconds"
	announcedMetric   = "svcproxy_kernel_notifications_total"
	lostMetric        = "svcproxy_kernel_notifications_lost_total"
	announcingMetric  = "svcproxy_kernel_notifications_received"
	connectedMetric   = "svcproxy_api_connected"
	apiErrorsMetric   = "svcproxy_api_errors_total"
	errorsMetric      = "svcproxy_errors_total"
	proxySyncedMetric = "svcproxy_kube_proxy_last_sync_timestamp_seconds"
	pendingMetric     = "svcproxy_api_to_kernel_pending_seconds"
	locksMetric       = "svcproxy_xtables_lock_looks_total"
	startsMetric      = "svcproxy_kube_proxy_starts_total"
	absentMetric      = "svcproxy_kube_proxy_absent_seconds_total"
	trackedMetric     = "svcproxy_conntrack_failures_total"
	publishedMetric   = "svcproxy_report_writes_total"
	unpublishedMetric = "svcproxy_report_write_failures_total"
	publishedAtMetric = "svcproxy_report_last_write_timestamp_seconds"
)

// declared are all metrics, in the order of their page.
var declared = []metric{
	{pathsMetric, "gauge", "Paths by verdict. A path is one frontend of a Service from one origin. Settling: something " +
		"is wrong with the path, and nothing of it counts yet.", []string{"verdict"}},
	{
		findingsMetric, "gauge", "Number of paths with a finding that counts; 1 for a finding of the node, which has no " +
			"service.",
		[]string{"code", "severity", "namespace", "service"},
	},
	{foldedMetric, "gauge", "Series of svcproxy_findings that are folded into those with the namespace (others).", nil},
	{settlingMetric, "gauge", "Findings that do not count yet.", nil},
	{
		settlingForMetric, "gauge", "For how long one of the findings that do not count yet has been seen in each pass, " +
			"whatever the API has changed meanwhile; 0 for none.", nil,
	},
	{nodeMetric, "gauge", "Always 1; the labels say what the node runs.", []string{
		"mode", "backend", "kube_proxy_version",
	}},
	{latencyMetric, "histogram", "Seconds from when the agent receives a change of endpoints from the API until the " +
		"rules of the node are right.", []string{"family", "mode"}},
	{
		unmeasuredMetric, "counter", "Changes of endpoints that the histogram does not contain, by reason: not_attributed " +
			"(which change of the rules it was is not known to a second or a tenth) or not_judged (a path of the Service " +
			"is Unknown, or was wrong before).", []string{"reason"},
	},
	{pendingMetric, "gauge", "Age of the oldest change of endpoints that was not in the rules when the node was last " +
		"read; 0 if there is none.", nil},
	{startsMetric, "counter", "How often a new kube-proxy process was found.", nil},
	{absentMetric, "counter", "Seconds without a kube-proxy process, on a node that had one before.", nil},
	{
		locksMetric, "counter", "Checks of the xtables lock, one each second, by its state: free, held, or waited for.",
		[]string{"state"},
	},
	{
		trackedMetric, "counter", "Packets that connection tracking has discarded since the node started, by reason: " +
			"insert_failed (a packet of the same connection came before it) or drop (no room for a new connection).",
		[]string{"reason"},
	},
	{proxySyncedMetric, "gauge", "When kube-proxy last wrote its rules, as it reports; of two IP families the earlier " +
		"time.", nil},
	{readMetric, "gauge", "When the node was last read for a pass that judged it.", nil},
	{durationMetric, "gauge", "How long that pass took.", nil},
	{judgedMetric, "counter", "Passes that judged the node, by what started them.", []string{"reason"}},
	{failuresMetric, "counter", "Passes that could not judge the node.", nil},
	{
		judgingMetric, "counter", "Paths of passes by how their verdict was determined: judged, or reused from the " +
			"previous pass because nothing that decides them has changed.", []string{"how"},
	},
	{cpuMetric, "counter", "Processor time of passes, including the programs that they run.", nil},
	{notJudgedMetric, "gauge", "Services that the last pass did not judge, or not all of whose paths: they are too " +
		"large, or the pass was ended by its limits of time or memory.", nil},
	{notHeldMetric, "gauge", "Services whose endpoints the agent does not hold, since the objects of the API take more " +
		"memory than it allows; they are among those that are not judged.", nil},
	{unreadMetric, "gauge", "Files of the node that the last pass could not read.", nil},
	{pollingMetric, "gauge", "Seconds between the last two passes that judged the node: how late what the kernel does " +
		"not announce may be seen; 0 before there were two.", nil},
	{announcedMetric, "counter", "Changes of nf_tables that the kernel has announced.", nil},
	{lostMetric, "counter", "How often the kernel discarded notifications (ENOBUFS), or they could not be received.", nil},
	{announcingMetric, "gauge", "1 while notifications of nf_tables are received.", nil},
	{connectedMetric, "gauge", "1 while the last request for each kind of object succeeded.", nil},
	{apiErrorsMetric, "counter", "Requests to the API server that failed.", []string{"resource"}},
	{publishedMetric, "counter", "How often the NodeReport of the node was written.", nil},
	{unpublishedMetric, "counter", "How often the NodeReport could not be written, by reason.", []string{"reason"}},
	{publishedAtMetric, "gauge", "When the NodeReport was last written; 0 if not since this process started.", nil},
	{errorsMetric, "counter", "Errors that were logged, other than those of passes and of the API.", nil},
}

// latencyBuckets are those of kube-proxy's kubeproxy_network_programming_duration_seconds
// (pkg/proxy/metrics/metrics.go).
var latencyBuckets = slices.Concat(
	prometheus.LinearBuckets(0.25, 0.25, 2), prometheus.LinearBuckets(1, 1, 59), prometheus.LinearBuckets(60, 5, 12),
	prometheus.LinearBuckets(120, 30, 7))

// maxFindings is how many series svcproxy_findings has at most, beside those of what is folded: one for each code.
const maxFindings = 200

// foldedNamespace stands for the namespaces of what is folded. No namespace has that name.
const foldedNamespace = "(others)"

// verdicts are those that svcproxy_paths has a series for, always.
var verdicts = []report.Verdict{
	report.Match, report.ByDesign, report.Warning, report.Mismatch, report.Unknown, settling,
}

// series are the labels of one series of svcproxy_findings.
type series struct {
	code, severity, namespace, service string
}

// view is what a pass has shown, as the metrics export it.
type view struct {
	paths                  map[report.Verdict]int
	findings               map[series]int
	settling               int
	settlingFor            time.Duration // how long the first of these has been seen
	grace                  time.Duration // that kube-proxy is given
	mode, backend, version string
	synced                 float64 // Unix time in seconds; 0: not known
	at                     time.Time
	took                   time.Duration
	unread                 int
	notJudged, notHeld     int // Services
	polling                time.Duration
	pending                time.Time // of the oldest change that the rules do not follow; zero for none
}

// metrics are the agent's. Those of the last pass are exported together.
type metrics struct {
	registry *prometheus.Registry
	descs    map[string]*prometheus.Desc // of what collect makes

	latency                                               *prometheus.HistogramVec
	passes, apiErrors, publishFailures, judging, locks    *prometheus.CounterVec
	unmeasured                                            *prometheus.CounterVec
	failures, cpu, announced, lost, errorsSeen, published prometheus.Counter
	starts, absent                                        prometheus.Counter
	announcing, connected, publishedAt                    prometheus.Gauge

	tracked func() *snapshot.Tracked // nil: nobody counts

	mu   sync.Mutex
	last *view
}

// newMetrics makes the metrics, and registers them with those of Go and of the process.
func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), descs: map[string]*prometheus.Desc{}}
	byName := map[string]metric{}
	for _, d := range declared {
		byName[d.name] = d
	}
	counters := func(name string) *prometheus.CounterVec {
		d := byName[name]
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.name, Help: d.help}, d.labels)
	}
	gauge := func(name string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: byName[name].help})
	}
	counter := func(name string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: byName[name].help})
	}
	m.latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: latencyMetric, Help: byName[latencyMetric].help, Buckets: latencyBuckets,
	}, byName[latencyMetric].labels)
	m.passes, m.apiErrors = counters(judgedMetric), counters(apiErrorsMetric)
	m.judging, m.unmeasured = counters(judgingMetric), counters(unmeasuredMetric)
	m.published, m.publishFailures = counter(publishedMetric), counters(unpublishedMetric)
	m.publishedAt = gauge(publishedAtMetric)
	m.failures, m.cpu, m.announced = counter(failuresMetric), counter(cpuMetric), counter(announcedMetric)
	m.lost, m.errorsSeen = counter(lostMetric), counter(errorsMetric)
	m.locks, m.starts, m.absent = counters(locksMetric), counter(startsMetric), counter(absentMetric)
	m.announcing, m.connected = gauge(announcingMetric), gauge(connectedMetric)
	for _, name := range []string{
		pathsMetric, findingsMetric, foldedMetric, settlingMetric, settlingForMetric, nodeMetric, proxySyncedMetric,
		readMetric, durationMetric, unreadMetric, notJudgedMetric, notHeldMetric, pollingMetric, pendingMetric, trackedMetric,
	} {
		d := byName[name]
		m.descs[name] = prometheus.NewDesc(d.name, d.help, d.labels, nil)
	}
	m.registry.MustRegister(
		m, m.unmeasured,
		m.latency, m.passes, m.apiErrors, m.judging, m.failures, m.cpu, m.announced, m.lost, m.errorsSeen, m.announcing,
		m.connected, m.published, m.publishFailures, m.publishedAt, m.locks, m.starts, m.absent,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	for _, kind := range []string{kindServices, kindEndpointSlices, kindNodes} {
		m.apiErrors.WithLabelValues(kind)
	}
	for _, state := range lockStates {
		m.locks.WithLabelValues(string(state))
	}
	m.judged(&judge.Memory{})
	for _, why := range unmeasured {
		m.unmeasured.WithLabelValues(why)
	}
	for _, why := range publishWhy {
		m.publishFailures.WithLabelValues(why)
	}
	return m
}

// judged counts the paths of a pass.
func (m *metrics) judged(of *judge.Memory) {
	m.judging.WithLabelValues("judged").Add(float64(of.Anew))
	m.judging.WithLabelValues("reused").Add(float64(of.Reused))
}

// show exports what a pass has shown.
func (m *metrics) show(v *view) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = v
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		out <- d
	}
}

// collectTracked exports the counters of connection tracking, where there are any.
func (m *metrics) collectTracked(out chan<- prometheus.Metric) {
	if m.tracked == nil {
		return
	}
	t := m.tracked()
	if t == nil {
		return
	}
	for reason, n := range map[string]uint64{"insert_failed": t.InsertFailed, "drop": t.Drop} {
		out <- prometheus.MustNewConstMetric(m.descs[trackedMetric], prometheus.CounterValue, float64(n), reason)
	}
}

// Collect implements prometheus.Collector. Before the first pass there is nothing to export of passes.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.collectTracked(out)
	m.mu.Lock()
	v := m.last
	m.mu.Unlock()
	if v == nil {
		return
	}
	gauge := func(name string, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(m.descs[name], prometheus.GaugeValue, value, labels...)
	}
	for _, verdict := range verdicts {
		gauge(pathsMetric, float64(v.paths[verdict]), string(verdict))
	}
	findings, folded := bounded(v.findings)
	for s, n := range findings {
		gauge(findingsMetric, float64(n), s.code, s.severity, s.namespace, s.service)
	}
	gauge(foldedMetric, float64(folded))
	gauge(settlingMetric, float64(v.settling))
	gauge(settlingForMetric, v.settlingFor.Seconds())
	gauge(nodeMetric, 1, v.mode, v.backend, v.version)
	if v.synced > 0 {
		gauge(proxySyncedMetric, v.synced)
	}
	gauge(readMetric, float64(v.at.UnixMilli())/1e3)
	gauge(durationMetric, v.took.Seconds())
	gauge(unreadMetric, float64(v.unread))
	gauge(notJudgedMetric, float64(v.notJudged))
	gauge(notHeldMetric, float64(v.notHeld))
	gauge(pollingMetric, v.polling.Seconds())
	pending := 0.0
	if !v.pending.IsZero() {
		pending = time.Since(v.pending).Seconds()
	}
	gauge(pendingMetric, pending)
}

// bounded keeps the first maxFindings series, errors before warnings, those of many paths before those of few, and
// folds the others into one for each code. folded is how many these are.
func bounded(all map[series]int) (out map[series]int, folded int) {
	if len(all) <= maxFindings {
		return all, 0
	}
	keys := make([]series, 0, len(all))
	for s := range all {
		keys = append(keys, s)
	}
	slices.SortFunc(keys, func(a, b series) int {
		return cmp.Or(cmp.Compare(a.severity, b.severity), cmp.Compare(all[b], all[a]), cmp.Compare(a.code, b.code),
			cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.service, b.service))
	})
	out = map[series]int{}
	for i, s := range keys {
		if i < maxFindings {
			out[s] = all[s]
			continue
		}
		out[series{s.code, s.severity, foldedNamespace, ""}] += all[s]
		folded++
	}
	return out, folded
}
