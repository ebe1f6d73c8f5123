// SPDX-License-Identifier: Apache-2.0

package print

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// TestValuesText: values stand behind the source that they have in common; one that is not known says what it may be,
// and is left out where nothing depends on it.
func TestValuesText(t *testing.T) {
	got := valuesText([]report.Value{
		{Name: "mode", Value: "iptables", Source: "rules"},
		{Name: "version", Value: "v1.36.3", Source: "metrics", Detail: "metrics.txt"},
		{Name: "detectLocalMode", Value: "ClusterCIDR 10.244.0.0/16", Source: "rules", Detail: "IPv4: all 60 rules"},
		{Name: "masqueradeAll", Source: "unknown", Detail: "may be false or true; all 2 rules"},
		{Name: "featureGates", Source: "unknown"},
	})
	const want = "rules: mode iptables, detectLocalMode ClusterCIDR 10.244.0.0/16  metrics: version v1.36.3  " +
		"unknown: masqueradeAll may be false or true; all 2 rules"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
