// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// deletion is one thing of kube-proxy's taken from a captured node.
type deletion struct {
	what string // as its file has it, with the file and what it is in before it
	file string
	data []byte // of the file without it
}

var counters = regexp.MustCompile(`^\[\d+:\d+\] `)

// lineDeletions deletes each line of a file for which of returns a name, and those that follow it which belong to it.
func lineDeletions(file string, data []byte, of func(line string) (what string, more func(l string) bool)) []deletion {
	lines := strings.SplitAfter(string(data), "\n")
	var out []deletion
	for i, l := range lines {
		what, more := of(strings.TrimSuffix(l, "\n"))
		if what == "" {
			continue
		}
		end := i + 1
		for more != nil && end < len(lines) && more(lines[end]) {
			end++
		}
		rest := slices.Delete(slices.Clone(lines), i, end)
		out = append(out, deletion{file + " " + what, file, []byte(strings.Join(rest, ""))})
	}
	return out
}

// saveDeletions deletes each rule of kube-proxy's from a save file.
func saveDeletions(file string, data []byte) []deletion {
	table := ""
	return lineDeletions(file, data, func(l string) (string, func(string) bool) {
		if t, ok := strings.CutPrefix(l, "*"); ok {
			table = t
		}
		l = counters.ReplaceAllString(l, "")
		if !strings.HasPrefix(l, "-A") || !strings.Contains(l, "KUBE-") {
			return "", nil
		}
		return table + " " + l, nil
	})
}

// serverDeletions deletes each virtual server with its destinations, and each destination.
func serverDeletions(file string, data []byte) []deletion {
	return lineDeletions(file, data, func(l string) (string, func(string) bool) {
		if !strings.HasPrefix(l, "-A ") {
			return l, nil
		}
		return l, func(next string) bool { return strings.HasPrefix(next, "-a ") }
	})
}

func setDeletions(file string, data []byte) []deletion {
	return lineDeletions(file, data, func(l string) (string, func(string) bool) {
		if !strings.HasPrefix(l, "add KUBE-") {
			return "", nil
		}
		return l, nil
	})
}

// nftDeletions deletes each rule of kube-proxy's tables, and each element of their sets and maps.
func nftDeletions(t *testing.T, file string, data []byte) []deletion {
	t.Helper()
	var listing struct {
		NFTables []json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(data, &listing); err != nil {
		t.Fatal(err)
	}
	var out []deletion
	with := func(what string, i int, other ...json.RawMessage) {
		list := slices.Replace(slices.Clone(listing.NFTables), i, i+1, other...)
		text, err := json.Marshal(map[string]any{"nftables": list})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, deletion{file + " " + what, file, text})
	}
	for i, raw := range listing.NFTables {
		var object map[string]map[string]any
		if err := json.Unmarshal(raw, &object); err != nil {
			t.Fatal(err)
		}
		for kind, o := range object {
			if o["table"] != kubeproxy.NFTTable {
				continue
			}
			family, _ := o["family"].(string)
			if kind == "rule" {
				text, _ := json.Marshal(o["expr"])
				with(fmt.Sprintf("%s rule %s %v %s", family, o["chain"], o["comment"], text), i)
			}
			elements, _ := o["elem"].([]any)
			for k := range elements {
				less := maps.Clone(o)
				less["elem"] = slices.Delete(slices.Clone(elements), k, k+1)
				text, err := json.Marshal(map[string]any{kind: less})
				if err != nil {
					t.Fatal(err)
				}
				key, _ := json.Marshal(elements[k])
				with(fmt.Sprintf("%s element %s %s", family, o["name"], key), i, text)
			}
		}
	}
	return out
}

// deletions are all that can be deleted from a captured node.
func (w *capturedNode) deletions() []deletion {
	var out []deletion
	for _, f := range slices.Sorted(maps.Keys(w.files)) {
		switch f {
		case v4, v6:
			out = append(out, saveDeletions(f, w.files[f])...)
		case snapshot.NFTFile:
			out = append(out, nftDeletions(w.t, f, w.files[f])...)
		case snapshot.IPVSFile:
			out = append(out, serverDeletions(f, w.files[f])...)
		case snapshot.IPSetFile:
			out = append(out, setDeletions(f, w.files[f])...)
		}
	}
	return out
}

// particular are the parts of a deletion that differ between those of one kind: names, addresses, numbers, hashes.
var particular = regexp.MustCompile(`"[^"]*[0-9/][^"]*"|[A-Z0-9]{8,}(-\S+)?|[0-9a-f.:]*[0-9][0-9a-f.:/]*`)

// sampled are so many deletions of each kind.
func sampled(all []deletion, each int) []deletion {
	seen := map[string]int{}
	return slices.DeleteFunc(slices.Clone(all), func(d deletion) bool {
		kind := particular.ReplaceAllString(d.what, "x")
		seen[kind]++
		return seen[kind] > each
	})
}

// without are the node's files without what is deleted.
func (w *capturedNode) without(d *deletion) *snapshot.Node {
	files := maps.Clone(w.files)
	files[d.file] = d.data
	return snapshot.NewNode("node1", files)
}

// errorsIn are the codes of severity error in a report.
func errorsIn(r *report.NodeReport) []string {
	codes := map[string]bool{}
	note := func(list []report.Finding) {
		for i := range list {
			if list[i].Severity == report.Error {
				codes[list[i].Code] = true
			}
		}
	}
	note(r.Findings)
	for i := range r.Paths {
		note(r.Paths[i].Findings)
	}
	return slices.Sorted(maps.Keys(codes))
}

// ends says where packets come to: of every origin that there is, judged or not, to every frontend.
func (w *capturedNode) ends(c *Cluster, files *snapshot.Node) string {
	w.t.Helper()
	s, err := nodestate.Load(files)
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := newNode(c, s, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	walker := NewWalker(n.State, n.net)
	var out strings.Builder
	for _, svc := range n.cluster.Services {
		for _, f := range n.exp.Frontends(svc) {
			origins := append(n.originsOf(svc, f, nil), n.shortCut(svc, f, nil)...)
			for _, kind := range []expect.OriginKind{expect.FromPod, expect.FromExternal} {
				origins = append(origins, n.originsOf(svc, f, &From{Kind: kind})...)
			}
			for _, p := range n.pods() {
				if at := p.address(f.Address.Is4()); at.IsValid() {
					origins = append(origins, n.originsOf(svc, f, &From{Kind: expect.FromPod, Address: at, Pod: p.name})...)
				}
			}
			for _, o := range origins {
				if !o.Address.IsValid() {
					continue
				}
				res := walker.Walk(start(f, o.Origin), netfilter.Options{})
				got := n.outcomesOf(f, &res)
				fmt.Fprintf(&out, "%s %v %s %s:", svc.Name, f.Address, o.Kind, o.Address)
				for i := range got.list {
					x := &got.list[i]
					fmt.Fprintf(&out, " %s %s %.6f %t %t %t", x.action, x.to, x.share, x.masq, x.certain, x.here)
				}
				out.WriteByte('\n')
			}
		}
	}
	return out.String()
}

// unchanged explains why no finding tells of a deletion: no packet of a path meets what is deleted, or it does nothing
// to it. what matches a deletion; where the reason is one of the capture's own, holds tells whether it is so there.
type unchanged struct {
	what  string
	why   string
	holds func(w *capturedNode, what string) bool
}

var unchangedBy = []unchanged{
	{what: `KUBE-FIREWALL`, why: "guards 127.0.0.0/8 against the node's neighbours: no frontend is reached so"},
	{what: `comment "other traffic to .* will be dropped by KUBE-PROXY-FIREWALL"$`, why: "a rule that is a comment"},
	{what: `--ctstate INVALID `, why: "a path's packet opens a connection"},
	{what: `-A KUBE-FORWARD .* -j ACCEPT$|-A FORWARD .* -j KUBE-FORWARD$`, why: "the policy of FORWARD accepts, too"},
	{what: `-A INPUT .*health check|HEALTH-CHECK-NODE-PORT`, why: "a health check's port is not a frontend of a Service"},
	{what: `health check node port" -m tcp`, why: "a health check's port is not a frontend of a Service"},
	{
		what: `-A INPUT .*-j KUBE-(PROXY-FIREWALL|EXTERNAL-SERVICES)$`,
		why:  "the address of a load balancer or an external IP is not the node's own: packets to it are forwarded",
	},
	{
		what: `-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0$`,
		why:  "takes the mark off, for the packet of a tunnel that it may be put into",
	},
	{what: `-A KUBE-NODEPORTS -d 127.0.0.0/8 .*nfacct`, why: "counts, and does what the rule behind it does"},
	{
		what: `-A KUBE-SEP-\w+ -s (10\.244\.[23]\.|10\.77\.0\.|fd00:10:244:[23]::)\S+ .*-j KUBE-MARK-MASQ$|` +
			`(hairpin-connections|LOOP-BACK) .*10\.77\.0\.11`,
		why: "an endpoint on another node does not reach itself by this one; what comes from the node is marked as from " +
			"outside the pod network",
	},
	{
		what: `(-s|hairpin-connections \S+|LOOP-BACK) ?10\.244\.1\.(27|96|97)\b|hairpin-connections .*10\.244\.1\.97`,
		why:  "an endpoint that is not ready, or to which a pod of the cluster is never sent, does not reach itself",
	},
	{
		what: `^(ip6tables-save.txt|nft-ruleset.json ip6) `, why: "no Service has an address of that family",
		holds: func(w *capturedNode, _ string) bool {
			return !slices.ContainsFunc(w.cluster.Services, func(s *corev1.Service) bool {
				return slices.ContainsFunc(s.Spec.ClusterIPs, func(ip string) bool { return strings.Contains(ip, ":") })
			})
		},
	},
	{
		what: `save.txt \w+ -A .* -j KUBE-[A-Z-]+$`, why: "leads to a chain without rules",
		holds: func(w *capturedNode, what string) bool {
			file, rest, _ := strings.Cut(what, " ")
			table, rule, _ := strings.Cut(rest, " ")
			empty, in := true, false
			for line := range strings.Lines(string(w.files[file])) {
				if strings.HasPrefix(line, "*") {
					in = line == "*"+table+"\n"
				}
				empty = empty && !(in && strings.Contains(line, "-A "+rule[strings.LastIndex(rule, " ")+1:]+" "))
			}
			return empty
		},
	},

	{
		what: `rule cluster-ips-check |jump":{"target":"cluster-ips-check"|element cluster-ips `,
		why:  "refuses packets to ports that no Service has; what has an endpoint is translated before, the rest refused",
	},
	{
		what: `element no-endpoint-services .*"(10\.96\.|fd00:10:96::)|ip6 rule (reject-chain|service-endpoints-check) `,
		why:  "cluster-ips-check refuses packets to cluster IPs without endpoints in the same way",
	},
	{
		what: `ip6? rule filter-(input|forward|output) .*"service-endpoints-check"`,
		why:  "no frontend without endpoints but cluster IPs, which cluster-ips-check refuses, is reached by that hook",
	},
	{
		what: `(nodeport|service)-endpoints-check|firewall-check|rule reject-chain `, why: "the map that leads on is empty",
		holds: func(w *capturedNode, what string) bool {
			maps := []string{"no-endpoint-nodeports", "no-endpoint-services", "firewall-ips"}
			if strings.Contains(what, "nodeport-endpoints-check") {
				maps = maps[:1]
			}
			family, full := strings.Fields(what)[1], false
			for _, d := range nftDeletions(w.t, snapshot.NFTFile, w.files[snapshot.NFTFile]) {
				full = full || slices.ContainsFunc(maps, func(m string) bool {
					return strings.Contains(d.what, " "+family+" element "+m+" ")
				})
			}
			return !full
		},
	},

	{
		what: `add KUBE-(6-)?IPVS-IPS |-A INPUT .*-j KUBE-IPVS-FILTER$|-A KUBE-IPVS-FILTER .*-j REJECT`,
		why:  "refuses packets to ports that no Service has",
	},
	{what: `nat -A KUBE-SERVICES .*-j ACCEPT$`, why: "ends the chain, and no rule stands behind the jump to it"},
	{what: `nat -A KUBE-SERVICES -s (127\.0\.0\.0/8|::1/128) -j RETURN$`, why: "no NodePort is served at a loopback address"},
	{what: `-A FORWARD .*-j KUBE-PROXY-FIREWALL$`, why: "in ipvs mode all frontends are the node's own addresses"},
	{what: `-A KUBE-IPVS-FILTER .*KUBE-6-EXTERNAL-IP-LOCAL`, why: "the set has no entry"},
	{
		what: `add KUBE-NODE-PORT-(TCP|UDP) \d+$`, why: "the set for traffic policy Local has the port, and is asked first",
		holds: func(w *capturedNode, what string) bool {
			return strings.Contains(string(w.files[snapshot.IPSetFile]),
				strings.Replace(strings.TrimPrefix(what, snapshot.IPSetFile+" "), "NODE-PORT-", "NODE-PORT-LOCAL-", 1)+"\n")
		},
	},
	{
		what: `add KUBE-(6-)?(CLUSTER-IP|EXTERNAL-IP|LOAD-BALANCER|NODE-PORT-TCP) `,
		why:  "the virtual server has no endpoint, and refuses what the rules behind the set would refuse",
		holds: func(w *capturedNode, what string) bool {
			at := strings.TrimPrefix(what[strings.LastIndex(what, " ")+1:], "add ")
			if a, port, ok := strings.Cut(at, ",tcp:"); ok {
				if at = a + ":" + port; strings.Contains(a, ":") {
					at = "[" + a + "]:" + port
				}
			} else {
				at = "10.77.0.11:" + at
			}
			servers := string(w.files[snapshot.IPVSFile])
			return strings.Contains(servers, "-A -t "+at+" ") && !strings.Contains(servers, "-a -t "+at+" ")
		},
	},
}

// Every rule, element, virtual server and real server of kube-proxy's that is deleted from a captured node is found as
// a mismatch, but for those of which it is known why they change nothing for any packet of a path. That they change
// nothing is walked. SVCPROXY_DELETIONS is how many of each kind are deleted.
func TestEveryDeletionIsFound(t *testing.T) {
	testutil.Long(t)
	used, complete := make([]int, len(unchangedBy)), true
	patterns := make([]*regexp.Regexp, len(unchangedBy))
	for i := range unchangedBy {
		patterns[i] = regexp.MustCompile(unchangedBy[i].what)
	}
	for _, name := range []string{
		"iptables", "iptables-legacy", "nftables", "ipvs", "real-2node-iptables", "real-2node-nftables",
	} {
		t.Run(name, func(t *testing.T) {
			w := openCaptured(t, name)
			c := NewCluster(w.cluster)
			before := w.ends(c, snapshot.NewNode("node1", w.files))
			every := w.deletions()
			all := sampled(every, testutil.Count(t, "SVCPROXY_DELETIONS", 1))
			complete = complete && len(all) == len(every)
			found, explained := 0, map[string]int{}
			for i := range all {
				d := &all[i]
				r := Files(w.cluster, w.without(d), Request{PerPathService: true})
				if r.Error != "" {
					t.Fatalf("%s: %s", d.what, r.Error)
				}
				if len(errorsIn(&r)) > 0 {
					found++
					continue
				}
				k := slices.IndexFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(d.what) })
				for k >= 0 && unchangedBy[k].holds != nil && !unchangedBy[k].holds(w, d.what) {
					next := slices.IndexFunc(patterns[k+1:], func(p *regexp.Regexp) bool { return p.MatchString(d.what) })
					if k += next + 1; next < 0 {
						k = -1
					}
				}
				if k < 0 {
					t.Errorf("neither found nor explained: %s", d.what)
					continue
				}
				used[k]++
				explained[unchangedBy[k].why]++
				if after := w.ends(c, w.without(d)); after != before {
					t.Errorf("%s: it changes what packets meet", d.what)
					firstDifference(t, before, after)
				}
			}
			t.Logf("%d deletions of %d, %d found", len(all), len(every), found)
			for _, why := range slices.Sorted(maps.Keys(explained)) {
				t.Logf("%4d unchanged: %s", explained[why], why)
			}
		})
	}
	for i, n := range used {
		if n == 0 && complete && !t.Failed() {
			t.Errorf("explains nothing: %s", unchangedBy[i].what)
		}
	}
}
