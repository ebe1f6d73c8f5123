// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// nodeFindings are the findings of a code about the node.
func nodeFindings(r *report.NodeReport, code string) []report.Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f report.Finding) bool { return f.Code != code })
}

// A NodePort that the kernel may give to a socket is a warning, unless it is reserved.
func TestNodePortsInTheRangeOfEphemeralPorts(t *testing.T) {
	for _, tt := range []struct {
		name, given, reserved string
		subject, command      string // "" for none
	}{
		{"the default range", "32768\t60999", "", "", ""},
		{"the setting of reserved ports was not collected", "1024\t60999", "-", "", ""},
		{"a range that no kernel has", "1024", "", "", ""},
		{
			"the range has them", "1024\t60999", "",
			"30053, 30080-30083, 30090-30102, 30110-30111 and 1 more",
			"sysctl -w net.ipv4.ip_local_reserved_ports=30053,30080-30083,30090-30102,30110-30111,31000-31002",
		},
		{"all of them are reserved", "1024\t60999", "8472,30000-32767", "", ""},
		{"the last one alone is in it", "31002\t60999", "", "31002", "sysctl -w net.ipv4.ip_local_reserved_ports=31002"},
		{"it begins behind the last one", "31003\t60999", "", "", ""},
		{
			"some are reserved", "31000\t60999", "31000-31001", "31002",
			"sysctl -w net.ipv4.ip_local_reserved_ports=31000-31001,31002",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			w.set("net/ipv4/ip_local_port_range", tt.given)
			if tt.reserved != "-" {
				w.set("net/ipv4/ip_local_reserved_ports", tt.reserved)
			}
			r := w.run()
			found := nodeFindings(&r, NodePortEphemeral)
			if tt.subject == "" {
				if len(found) > 0 {
					t.Errorf("found: %+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Subject != tt.subject || found[0].Severity != report.Warn ||
				found[0].Commands[0].Line != tt.command || found[0].Commands[0].Node != "node1" {
				t.Errorf("found: %+v", found)
			}
		})
	}
}

// Of a Service that was asked for only its own NodePorts are named, and all are reserved.
func TestEphemeralNodePortsAreThoseAskedFor(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.set("net/ipv4/ip_local_port_range", "1024\t60999")
	w.set("net/ipv4/ip_local_reserved_ports", "")
	for name, want := range map[string]string{"shop/np": "30080", "shop/ep3": ""} {
		svc := w.service(name)
		r := Files(
			w.cluster,
			snapshot.NewNode("node1", w.files),
			Request{Services: []types.NamespacedName{expect.NameOf(svc)}},
		)
		found := nodeFindings(&r, NodePortEphemeral)
		if got := subjects(found); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if want != "" && !strings.Contains(found[0].Commands[0].Line, "31000") {
			t.Errorf("%s: %+v", name, found[0].Commands)
		}
	}
}

func subjects(found []report.Finding) string {
	var out []string
	for i := range found {
		out = append(out, found[i].Subject)
	}
	return strings.Join(out, "; ")
}

// nodePortAddresses of one family leaves NodePorts of the other one open, where there are some.
func TestNodePortAddressesOfOneFamily(t *testing.T) {
	for _, tt := range []struct {
		name, base, ranges string
		single             bool // no Service has addresses of IPv6
		want               string
	}{
		{"IPv4 alone", "iptables", `["10.77.0.0/16"]`, false, "IPv6"},
		{"IPv4 alone in ipvs mode", "ipvs", `["10.77.0.0/16"]`, false, "IPv6"},
		{"IPv6 alone", "iptables", `["fd00:77::/64"]`, false, "IPv4"},
		{"both", "iptables", `["10.77.0.0/16","fd00::/8"]`, false, ""},
		{"the keyword for both", "nftables", `["primary"]`, false, ""},
		{"not set", "iptables", `null`, false, ""},
		{"no Service has the other one", "iptables", `["10.77.0.0/16"]`, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, tt.base)
			w.edit("configz.json", func(l string) []string {
				const key = `"nodePortAddresses":`
				from := strings.Index(l, key)
				if from < 0 {
					t.Fatal("configz.json has no nodePortAddresses")
				}
				to := from + len(key) + strings.IndexAny(l[from+len(key):], ",}")
				if l[from+len(key)] == '[' {
					to = from + len(key) + strings.IndexByte(l[from+len(key):], ']') + 1
				}
				return []string{l[:from+len(key)] + tt.ranges + " " + l[to:]}
			})
			if tt.single {
				for _, svc := range w.cluster.Services {
					svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
					svc.Spec.ClusterIPs = svc.Spec.ClusterIPs[:min(1, len(svc.Spec.ClusterIPs))]
				}
			}
			r := w.run()
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			if got := subjects(nodeFindings(&r, NodePortsExposed)); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}
