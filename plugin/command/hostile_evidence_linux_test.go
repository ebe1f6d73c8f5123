// SPDX-License-Identifier: Apache-2.0

package command

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// hostileEvidence are files of evidence that pass a limit: each costs what depends on it, and is named with the limit.
var hostileEvidence = []struct {
	name  string
	write func(t *testing.T) string
	want  string
}{
	{
		"1,000,000 connections",
		added(
			node+"conntrack.txt",
			times(
				1_000_000,
				"",
				"tcp 6 10 src=1.1.1.1 dst=2.2.2.2 sport=1 dport=%d src=2.2.2.2 dst=1.1.1.1 sport=1 dport=2\n",
				"",
			),
		),
		"more than 500000 lines",
	},
	{
		"JSON of a million levels",
		replaced(node+"ip-addr.json", node+"ip-addr.json", times(1_000_000, "", "[", "")),
		"nested deeper than 200 levels",
	},
	{
		"1,000,000 routes",
		replaced(
			node+"ip-route.json",
			node+"ip-route.json",
			times(1_000_000, `[{"dst":"default"}`, `,{"dst":"10.0.0.0/8"}`, "]"),
		),
		"a list of more than 200000 elements",
	},
	{
		"200 MB of settings",
		replaced(
			node+"sysctl.txt",
			node+"sysctl.txt",
			times(1_000_000, "", "net.ipv4."+strings.Repeat("m", 200)+" = %d\n", ""),
		),
		"is larger than 32 MB",
	},
	{
		"a configuration of 30 MB",
		replaced(node+"configz.json", node+"kube-proxy-config.yaml", times(3_000_000, "a:\n", "- a: %d\n", "")),
		"is larger than 1 MB",
	},
	{
		"a gigabyte of processes",
		added(node+"processes.txt.gz", gigabyte('1')),
		"is larger than 32 MB",
	},
	{
		"pods that take a gigabyte",
		replaced("cluster/pods.yaml", "cluster/pods.json.gz", gigabyte(' ')),
		"is larger than 128 MB",
	},
}

// TestHostileEvidence reads each in a process of its own: the rules are judged within the limits, and a line names the
// file.
func TestHostileEvidence(t *testing.T) {
	plugin := builtPlugin(t)
	for _, tt := range hostileEvidence {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr, memory, spent := measured(t, plugin, tt.write(t))
			t.Logf("%d MB, %v", memory>>20, spent.Round(time.Millisecond))
			named := slices.ContainsFunc(slices.Collect(strings.Lines(stdout)), func(line string) bool {
				return strings.Contains(line, "was not read: ") && strings.Contains(line, tt.want)
			})
			if code != run.ExitMismatch || stderr != "" || !named || !strings.Contains(stdout, "StaleEndpoint") {
				t.Errorf("exit code %d, stderr %.300q, want a line with %q in\n%s", code, stderr, tt.want, stdout)
			}
			if memory > hostileMemory || spent > hostileTime {
				t.Errorf("%d MB and %v; want at most %d MB and %v", memory>>20, spent, hostileMemory>>20, hostileTime)
			}
		})
	}
}
