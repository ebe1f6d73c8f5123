// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// toIPVS are the rules by which the command program has IPVS take cluster IP 10.96.77.154, port 80, of shop/ep3
// (nodehelper/program/ipvs_rules.go).
const toIPVS = `-A SVCPROXY-0123abcd-NAT ! -s 10.244.0.0/16 -d 10.96.77.154/32 -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x4000/0x4000
-A SVCPROXY-0123abcd-NAT -d 10.96.77.154/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.96.77.154:80
`

// onEp3 are virtual servers of shop/ep3.
const onEp3 = `-A -t 10.96.77.154:80 -s SCHEDULER
-a -t 10.96.77.154:80 -r 10.244.1.19:8080 -m -w 1
-a -t 10.96.77.154:80 -r 10.244.2.20:8080 -m -w 1
-a -t 10.96.77.154:80 -r 10.244.3.21:8080 -m -w 1
`

// A path through virtual servers that the command program has made is told from what ipvs mode has left behind, and
// judged.
func TestProgrammedVirtualServers(t *testing.T) {
	for _, tt := range []struct {
		name, servers string
		rules, bound  bool
		want          []string // of the path from a pod
		leftovers     []string
	}{
		{"as it is made", strings.Replace(onEp3, "SCHEDULER", "rr", 1), true, true, []string{Programmed}, nil},
		{
			"by another scheduler than kube-proxy's",
			strings.Replace(onEp3, "SCHEDULER", "lc", 1),
			true,
			true,
			[]string{Programmed},
			nil,
		},
		{
			"without the rules",
			strings.Replace(onEp3, "SCHEDULER", "rr", 1),
			false,
			true,
			nil,
			[]string{"virtual servers of IPVS"},
		},
		{
			"with persistence",
			strings.Replace(onEp3, "SCHEDULER", "rr -p 60", 1),
			true,
			true,
			[]string{PersistenceMismatch, Programmed},
			nil,
		},
		{
			"with weights",
			strings.Replace(onEp3, "SCHEDULER", "wrr", 1) + "-a -t 10.96.77.154:80 -r 10.244.9.9:8080 -m -w 1\n",
			true,
			true,
			[]string{StaleEndpoint, Programmed},
			nil,
		},
		{
			"without the hairpin",
			strings.Replace(onEp3, "SCHEDULER", "rr", 1),
			true,
			true,
			[]string{WrongMasquerade, Programmed},
			nil,
		},
		{
			"without the address",
			strings.Replace(onEp3, "SCHEDULER", "rr", 1),
			true,
			false,
			[]string{ServiceNotProgrammed, Programmed},
			nil,
		},
		{"without the virtual server", "", true, true, []string{ServiceNotProgrammed, Programmed}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			w.files[snapshot.IPVSFile] = []byte(tt.servers)
			w.files["sysctl.txt"] = append(w.files["sysctl.txt"], "\nnet/ipv4/vs/conntrack=1\n"...)
			if tt.bound {
				w.files["ip-addr.json"] = append(
					bytes.TrimSuffix(bytes.TrimSpace(w.files["ip-addr.json"]), []byte("]")),
					`,{"ifindex":99,"ifname":"svcproxy-ipvs","flags":["NOARP"],"addr_info":[{"family":"inet","local":"10.96.77.154","prefixlen":32,"scope":"global"}]}]`...)
			}
			if tt.rules {
				w.table(v4, "nat", func(l string) []string {
					switch l {
					case "*nat":
						return []string{l, ":SVCPROXY-0123abcd-NAT - [0:0]"}
					case "COMMIT":
						return append(strings.Split(strings.TrimSpace(toIPVS), "\n"), l)
					}
					return []string{l}
				})
				w.first(v4, "nat", "PREROUTING", "-j SVCPROXY-0123abcd-NAT")
				w.first(v4, "nat", "OUTPUT", "-j SVCPROXY-0123abcd-NAT")
				if tt.name != "without the hairpin" {
					w.first(v4, "nat", "POSTROUTING", "-s 10.244.1.19/32 -d 10.244.1.19/32 -j MASQUERADE")
				}
			}
			r := w.run()
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			if !slices.Equal(r.Mode.Leftovers, tt.leftovers) {
				t.Errorf("leftovers %q, want %q", r.Mode.Leftovers, tt.leftovers)
			}
			seen := false
			for i := range r.Paths {
				p := &r.Paths[i]
				if p.Service.Name != "ep3" || p.Service.Namespace != "shop" || p.Frontend.Kind != "ClusterIP" ||
					p.Origin.Kind != "pod" {
					continue
				}
				seen = true
				var got []string
				for _, f := range p.Findings {
					got = append(got, f.Code)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("%s %q, want %q", p.Verdict, got, tt.want)
				}
			}
			if !seen {
				t.Error("the path is not judged")
			}
		})
	}
}
