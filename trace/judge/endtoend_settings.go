// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// settingRemedies are what is done about settings of a node's kernel by which packets are lost: the value that lets
// them pass.
var settingRemedies = []struct {
	setting     lazyregexp.Regexp // with its value, as evidence has it
	unless      string            // the evidence has this, too
	value, text string
}{
	{
		lazyregexp.New(`\bnet/ipv[46]/(?:conf/[^/=\s]+/forwarding|ip_forward)=0\b`), "", "1",
		"let the kernel of {node} forward: kubelet, kube-proxy or the CNI plugin has set this, and something has set it " +
			"back (a file in sysctl.d, a tool that hardens nodes)",
	},
	{
		lazyregexp.New(`\bnet/ipv[46]/neigh/[^/=\s]+/mcast_solicit=0\b`), "", "3",
		"let the kernel of {node} ask for neighbours, and find what has set mcast_solicit (a file in sysctl.d, a tuning " +
			"DaemonSet)",
	},
	{
		lazyregexp.New(`\bnet/ipv4/conf/[^/=\s]+/rp_filter=1\b`), "rp_filter=2", "2",
		"let both directions take the same interface of {node}; where they are meant to take different ones, set the " +
			"filter to loose mode",
	},
}

// ofSetting is the remedy where a setting of a node's kernel decides, which evidence names; ok is false where it is
// none of settingRemedies.
func ofSetting(evidence []report.Evidence, node string) (r remedy, commands []report.Command, ok bool) {
	for i := range evidence {
		for _, x := range settingRemedies {
			text := evidence[i].Text
			if x.unless != "" && strings.Contains(text, x.unless) {
				continue
			}
			if found := x.setting().FindString(text); found != "" {
				key, _, _ := strings.Cut(found, "=")
				line := report.ShellLine("sysctl", "-w", key+"="+x.value)
				return advice(x.text), []report.Command{{Line: line, Node: node}}, true
			}
		}
	}
	return r, nil, false
}
