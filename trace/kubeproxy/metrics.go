// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// The metrics of kube-proxy that count failed writes (pkg/proxy/metrics/metrics.go): of iptables-restore, also in ipvs
// mode, and of nft. Partial restores, which only write changes, are followed by a full one when they fail.
var failureMetrics = []string{
	"kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
	"kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
}

var pendingMetrics = []string{
	"kubeproxy_sync_proxy_rules_endpoint_changes_pending",
	"kubeproxy_sync_proxy_rules_service_changes_pending",
}

// metrics is a text in Prometheus' format, whose samples are parsed on demand.
type metrics []byte

// each calls f with every sample of a metric.
func (m metrics) each(name string, f func(labels, value string)) {
	for line := range bytes.Lines(m) {
		rest, ok := bytes.CutPrefix(line, []byte(name))
		if !ok || len(rest) == 0 || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		labels, value, _ := strings.Cut(strings.TrimSpace(string(rest)), "} ")
		if rest[0] == ' ' {
			labels, value = "", labels
		}
		f(labels, value)
	}
}

// label returns the value of a label; "" where there is none.
func label(labels, name string) string {
	_, after, _ := strings.Cut(labels, name+`="`)
	value, _, _ := strings.Cut(after, `"`)
	return value
}

// sample is a line of the text format: a name, its labels, a number, perhaps a time.
var sample = lazyregexp.New(`^[A-Za-z_:][A-Za-z0-9_:]*(\{.*\})? +[-+]?[0-9A-Za-z.][-+0-9A-Za-z.]*( +-?[0-9]+)?\s*$`)

// PartialError is the error of metrics of which a part was read.
type PartialError struct{ reason string }

// Error says what is wrong with the rest.
func (e *PartialError) Error() string { return e.reason }

// check returns the lines that can be used. The error is a [PartialError] where others are among them, or where the
// text ends within a line, whose number may have lost its end.
func (m metrics) check() (metrics, error) {
	if len(bytes.TrimSpace(m)) == 0 {
		return nil, errors.New("it is empty")
	}
	var out metrics
	var reason string
	number, samples := 0, 0
	for line := range bytes.Lines(m) {
		number++
		switch {
		case line[len(line)-1] != '\n':
			reason = cmp.Or(reason, fmt.Sprintf("it is cut off in line %d", number))
			continue
		case line[0] == '#', len(bytes.TrimSpace(line)) == 0:
			continue
		case !sample().Match(line):
			reason = cmp.Or(reason, fmt.Sprintf("line %d is not a metric in Prometheus' text format", number))
			continue
		}
		out, samples = append(out, line...), samples+1
	}
	switch {
	case samples == 0:
		return nil, errors.New(cmp.Or(reason, "it has no metric in Prometheus' text format"))
	case reason != "":
		return out, &PartialError{reason}
	}
	return out, nil
}

// buildInfo is the metric that has the version. Metrics are printed in the order of their names, so that where it is
// there all of kube-proxy's own are, too, and a counter that has no sample has counted nothing.
const buildInfo = "kubernetes_build_info"

// ReadMetrics reads the response of /metrics. The error is a [PartialError] where a part was read; what that does not
// have is not known.
func (s *Status) ReadMetrics(data []byte) error {
	m, err := metrics(data).check()
	complete := false
	m.each(buildInfo, func(labels, _ string) {
		s.Version, complete = label(labels, "git_version"), err == nil
	})
	s.Syncs = map[string]*Sync{}
	each := func(metric string, f func(x *Sync, value float64)) {
		m.each(metric, func(labels, value string) {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return
			}
			family := label(labels, "ip_family")
			if s.Syncs[family] == nil {
				s.Syncs[family] = &Sync{Failures: -1}
			}
			f(s.Syncs[family], v)
		})
	}
	each("kubeproxy_sync_proxy_rules_last_timestamp_seconds", func(x *Sync, v float64) { x.Synced = v })
	each("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", func(x *Sync, v float64) { x.Queued = v })
	each("kubeproxy_sync_proxy_rules_duration_seconds_sum",
		func(x *Sync, v float64) { x.Average = time.Duration(v * float64(time.Second)) })
	each("kubeproxy_sync_proxy_rules_duration_seconds_count", func(x *Sync, v float64) {
		if v >= 1 {
			x.Average /= time.Duration(v)
		}
	})
	s.Failures, s.Pending = m.total(failureMetrics, ""), -1
	if complete {
		s.Pending = m.total(pendingMetrics, "")
		if len(s.Syncs) > 0 {
			s.Failures = max(s.Failures, 0) // counted by family, so that there is no sample before the first
		}
	}
	s.countByFamily(m, complete)
	return err
}

// countByFamily counts the failures of each family. A version that counts them of all families together (before 1.33)
// leaves them unknown.
func (s *Status) countByFamily(m metrics, complete bool) {
	for family, x := range s.Syncs {
		if family == "" {
			continue
		}
		x.Failures = m.total(failureMetrics, family)
		if complete {
			x.Failures = max(x.Failures, 0)
		}
	}
}

// total adds up samples of a family, "" of all; -1 where there is none.
func (m metrics) total(names []string, family string) int {
	sum := -1
	for _, name := range names {
		m.each(name, func(labels, value string) {
			if family != "" && label(labels, "ip_family") != family {
				return
			}
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				sum = max(sum, 0) + int(v)
			}
		})
	}
	return sum
}
