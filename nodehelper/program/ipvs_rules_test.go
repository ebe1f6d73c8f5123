// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// opened is a captured node that can be given files.
type opened struct {
	cluster *snapshot.Cluster
	node    *snapshot.Node
	files   map[string][]byte
}

func openCaptured(t *testing.T, name string) *opened {
	t.Helper()
	objects, node := snap.Node(t, "../../testdata/snapshots/"+name, "node1")
	return &opened{cluster: objects, node: node, files: snap.Files(t, node)}
}

func (o *opened) judge(t *testing.T) *report.NodeReport {
	t.Helper()
	r := judge.Files(o.cluster, snapshot.NewNode("node1", o.files), judge.Request{Matching: true, PerPathService: true})
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	return &r
}

// plan plans everything that one virtual server each can do; refused counts what cannot be.
func (o *opened) plan(t *testing.T) (all *plan.Plan, refused map[string]int) {
	t.Helper()
	all, refused = &plan.Plan{}, map[string]int{}
	for _, svc := range o.cluster.Services {
		p, _, _, err := judge.PlanFiles(o.cluster, o.node, plan.Request{Services: []*corev1.Service{svc}})
		if _, no := errors.AsType[plan.RefusalError](err); no {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all.Name, all.Mark = p.Name, p.Mark
		for i := range p.Frontends {
			f := p.Frontends[i]
			l := layoutOf(&plan.Plan{Name: p.Name, Mark: p.Mark, Frontends: []plan.Frontend{f}}, f.V6())
			if why := l.oneServer(&l.entry[0]); why != "" {
				refused[why]++
				continue
			}
			all.Frontends = append(all.Frontends, f)
		}
	}
	return all, refused
}

// insert puts rules into a save file as iptables-restore --noflush does.
func (in *iptInput) insert(save []byte) []byte {
	var out bytes.Buffer
	done := map[string]bool{}
	table := ""
	for line := range strings.Lines(string(save)) {
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = strings.TrimSpace(name)
		}
		for _, t := range in.tables {
			if table == t.name && !done[table] && (strings.Contains(line, "-A ") || strings.HasPrefix(line, "COMMIT")) {
				done[table] = true
				t.lines(&out)
			}
		}
		out.WriteString(line)
	}
	for _, t := range in.tables {
		if !done[t.name] {
			fmt.Fprintf(&out, "*%s\n", t.name)
			for _, c := range map[string][]string{
				"nat": {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"}, "filter": {"INPUT", "FORWARD", "OUTPUT"},
			}[t.name] {
				fmt.Fprintf(&out, ":%s ACCEPT [0:0]\n", c)
			}
			t.lines(&out)
			out.WriteString("COMMIT\n")
		}
	}
	return out.Bytes()
}

// lines writes chains and rules.
func (t *iptTable) lines(out *bytes.Buffer) {
	for _, c := range t.chains {
		fmt.Fprintln(out, declared(c))
	}
	for i := range t.rules {
		fmt.Fprintln(out, t.rules[i].saved())
	}
}

// program adds a plan's rules, virtual servers and addresses to the node's files.
func (o *opened) program(t *testing.T, p *plan.Plan, scheduler string) {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		v6   bool
		file []string
	}{
		{false, []string{"iptables-nft-save.txt", "iptables-save.txt"}},
		{true, []string{"ip6tables-nft-save.txt", "ip6tables-save.txt"}},
	} {
		name := f.file[0]
		if _, ok := o.files[name]; !ok {
			if _, ok := o.files[f.file[1]]; ok {
				name = f.file[1]
			}
		}
		o.files[name] = ipvsRules(p, f.v6, time.Time{}, func(*hook) bool { return false }).insert(o.files[name])
	}
	var servers strings.Builder
	has := map[serverKey]bool{}
	for i := range p.Frontends {
		v := serve(&p.Frontends[i], scheduler, nil)
		has[v.key()] = true
		servers.WriteString(ipvsadmOf(&v))
	}
	// The virtual servers that existed before.
	keep := true
	for line := range strings.Lines(string(o.files["ipvsadm.txt"])) {
		w := strings.Fields(line)
		if w[0] == "-A" {
			at, err := netip.ParseAddrPort(w[2])
			keep = err != nil || !has[serverKey{map[string]string{"-t": "TCP", "-u": "UDP", "--sctp-service": "SCTP"}[w[1]], at}]
		}
		if keep {
			servers.WriteString(line)
		}
	}
	o.files["ipvsadm.txt"] = []byte(servers.String())
	var bound strings.Builder
	for _, a := range vips(p) {
		if bound.Len() > 0 {
			bound.WriteString(",")
		}
		fmt.Fprintf(&bound, `{"family":"%s","local":"%s","prefixlen":%d,"scope":"global"}`,
			map[bool]string{false: "inet", true: "inet6"}[a.Is6()], a, a.BitLen())
	}
	o.files["ip-addr.json"] = append(bytes.TrimSuffix(bytes.TrimSpace(o.files["ip-addr.json"]), []byte("]")),
		`,{"ifindex":99,"ifname":"`+kubeproxy.ProgramDevice+`","flags":["NOARP"],"addr_info":[`+bound.String()+`]}]`...)
	for name, value := range ipvsSysctls {
		o.files["sysctl.txt"] = append(o.files["sysctl.txt"], "\nnet/ipv4/vs/"+name+"="+value+"\n"...)
	}
}

// ipvsadmOf is a virtual server as ipvsadm-save prints it.
func ipvsadmOf(v *VirtualServer) string {
	name := map[string]string{"TCP": "-t ", "UDP": "-u ", "SCTP": "--sctp-service "}[v.Protocol] + v.Address.String()
	out := "-A " + name + " -s " + v.Scheduler
	if v.Flags&persistent != 0 {
		out += fmt.Sprintf(" -p %d", v.Timeout)
	}
	out += "\n"
	for _, r := range v.Reals {
		out += fmt.Sprintf("-a %s -r %s -m -w %d\n", name, r.Address, r.Weight)
	}
	return out
}

// ends are the destinations of a path's packets.
func ends(p *report.Path) []string {
	var out []string
	for i := range p.Actual.Outcomes {
		o := &p.Actual.Outcomes[i]
		s := o.Action
		if o.Action == "DNAT" {
			s = fmt.Sprintf("%s %s %.4f", s, net.JoinHostPort(o.Endpoint.Address, fmt.Sprint(o.Endpoint.Port)), o.Share)
		}
		if o.Action == "Reject" {
			s = "Drop"
		}
		if o.Masquerade {
			s += " masqueraded"
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nameOf names a path. If the node has the frontend's address, the node's packets have that as source.
func nameOf(p *report.Path) string {
	if p.Origin.Kind == "node" && p.Frontend.Kind != "NodePort" {
		return fmt.Sprintf("%s/%s %s %s:%d/%s from node", p.Service.Namespace, p.Service.Name, p.Frontend.Kind,
			p.Frontend.Address, p.Frontend.Port, p.Frontend.Protocol)
	}
	return fmt.Sprintf("%s/%s %s %s:%d/%s from %s %s", p.Service.Namespace, p.Service.Name, p.Frontend.Kind,
		p.Frontend.Address, p.Frontend.Port, p.Frontend.Protocol, p.Origin.Kind, p.Origin.Address)
}

// Beside kube-proxy's rules of each mode, programmed virtual servers send the packets of every path to the same
// endpoints as kube-proxy's rules; they are recognized, and cause no other finding.
func TestVirtualServersByTheWalk(t *testing.T) {
	for _, tt := range []struct {
		node, scheduler string
		frontends       int // at least
	}{
		{"iptables", "", 60},
		{"ipvs", "", 80},
		{"iptables", "wlc", 60},
		{"iptables", "sh", 60},
	} {
		t.Run(tt.node+" "+tt.scheduler, func(t *testing.T) {
			o := openCaptured(t, tt.node)
			before := o.judge(t)
			p, refused := o.plan(t)
			t.Logf("%d frontends; refused: %v", len(p.Frontends), refused)
			if len(p.Frontends) < tt.frontends {
				t.Errorf("only %d frontends are planned", len(p.Frontends))
			}
			has := map[string]bool{}
			for i := range p.Frontends {
				has[p.Frontends[i].Address.String()+p.Frontends[i].Protocol] = true
			}
			o.program(t, p, tt.scheduler)
			after := o.judge(t)
			was := map[string]*report.Path{}
			for i := range before.Paths {
				was[nameOf(&before.Paths[i])] = &before.Paths[i]
			}
			compared := 0
			for i := range after.Paths {
				path := &after.Paths[i]
				a, err := netip.ParseAddr(path.Frontend.Address)
				if err != nil || !has[netip.AddrPortFrom(a, uint16(path.Frontend.Port)).String()+path.Frontend.Protocol] {
					continue
				}
				old := was[nameOf(path)]
				if old == nil {
					t.Errorf("%s was no path before", nameOf(path))
					continue
				}
				compared++
				if got, want := ends(path), ends(old); !slices.Equal(got, want) {
					t.Errorf("%s: %q, and kube-proxy's %q", nameOf(path), got, want)
				}
				if path.Verdict != report.Match && path.Verdict != report.ByDesign {
					t.Errorf("%s is judged %s: %+v", nameOf(path), path.Verdict, path.Findings)
				}
				dropped := slices.Contains(ends(path), "Drop")
				if !dropped &&
					!slices.ContainsFunc(path.Findings, func(f report.Finding) bool { return f.Code == judge.Programmed }) {
					t.Errorf("%s: that it was programmed is not said: %+v", nameOf(path), path.Findings)
				}
			}
			t.Logf("%d paths", compared)
			for _, f := range after.Findings {
				if !slices.ContainsFunc(before.Findings, func(b report.Finding) bool {
					return b.Code == f.Code && b.Subject == f.Subject
				}) {
					t.Errorf("the node: %s %s: %s", f.Code, f.Subject, f.Message)
				}
			}
			if after.Mode.Actual != before.Mode.Actual {
				t.Errorf("the node's mode is %q, and was %q", after.Mode.Actual, before.Mode.Actual)
			}
		})
	}
}
