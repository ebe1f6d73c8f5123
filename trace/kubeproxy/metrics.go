// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"bytes"
	"strconv"
	"strings"
	"time"
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

func (s *Status) readMetrics(m metrics) {
	m.each("kubernetes_build_info", func(labels, _ string) { s.Version = label(labels, "git_version") })
	s.Syncs = map[string]*Sync{}
	each := func(metric string, f func(x *Sync, value float64)) {
		m.each(metric, func(labels, value string) {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return
			}
			family := label(labels, "ip_family")
			if s.Syncs[family] == nil {
				s.Syncs[family] = &Sync{}
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
	s.Failures, s.Pending = m.total(failureMetrics), m.total(pendingMetrics)
	if len(s.Syncs) > 0 {
		s.Failures = max(s.Failures, 0) // counted by family, so that there is no sample before the first
	}
}

// total adds up samples; -1 where there is none.
func (m metrics) total(names []string) int {
	sum := -1
	for _, name := range names {
		m.each(name, func(_, value string) {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				sum = max(sum, 0) + int(v)
			}
		})
	}
	return sum
}
