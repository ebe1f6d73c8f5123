// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// edits change files of a node, by name.
type edits map[string]func(string) string

// and makes the changes of both.
func (e edits) and(more edits) edits {
	out := edits{}
	for _, list := range []edits{e, more} {
		for name, do := range list {
			first := out[name]
			out[name] = func(s string) string {
				if first != nil {
					s = first(s)
				}
				return do(s)
			}
		}
	}
	return out
}

// opaqueRules stop nothing, and whether they match is not known: the branches differ in the connection's mark.
func opaqueRules() edits {
	do := func(s string) string {
		const rule = "-m limit --limit 5/sec -j CONNMARK --set-xmark 0x100/0x100\n"
		return strings.Replace(s, "COMMIT", "[0:0] -A PREROUTING "+rule+"[0:0] -A OUTPUT "+rule+"COMMIT", 1)
	}
	return edits{snapshot.IPTablesNFTFile: do, snapshot.IP6TablesNFTFile: do}
}

// byGateway is what a route to the pods of another node goes by.
var byGateway = regexp.MustCompile(`"gateway":"[^"]*","dev":"eth0"`)

// severalHops give the routes to the pods of other nodes another next hop: the kernel chooses by the addresses.
func severalHops() edits {
	do := func(gateway string) func(string) string {
		return func(s string) string {
			var out strings.Builder
			for line := range strings.Lines(s) {
				if !strings.Contains(line, `"dst":"default"`) {
					line = byGateway.ReplaceAllString(line,
						`"nexthops":[{$0,"weight":1,"flags":[]},{"gateway":"`+gateway+`","dev":"eth0","weight":1,"flags":[]}]`)
				}
				out.WriteString(line)
			}
			return out.String() + "\n" // a fault may have left no such route
		}
	}
	return edits{snapshot.RouteFile: do("10.79.0.1"), snapshot.Route6File: do("fd00:79::1")}
}

// complications leave open which branch a packet takes, and change nothing for a connection.
var complications = map[string]edits{
	"a rule that cannot be evaluated": opaqueRules(),
	"several next hops":               severalHops(),
	"both":                            opaqueRules().and(severalHops()),
}

// TestUncertainBranchesHideNoFault: a recorded fault that is a mismatch is no match where, besides, it is not known
// which branch packets take.
func TestUncertainBranchesHideNoFault(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(recordedFaults, "*", "*.fault"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fault is recorded: %v", err)
	}
	for _, file := range files {
		if _, r := reportRecorded(t, file, nil); r.Paths[0].Verdict != report.Mismatch {
			continue
		}
		for name, c := range complications {
			_, r := reportRecorded(t, file, c)
			if v := r.Paths[0].Verdict; v != report.Mismatch && v != report.Unknown {
				t.Errorf("%s, with %s: %s %+v", filepath.Base(file), name, v, r.Paths[0].Findings)
			}
		}
	}
}

// settingTo sets kernel settings of the recorded node: KEY=VALUE; KEY alone is taken out.
func settingTo(lines ...string) edits {
	return edits{snapshot.SysctlFile: func(s string) string {
		for _, line := range lines {
			key, _, set := strings.Cut(line, "=")
			var out strings.Builder
			for l := range strings.Lines(s) {
				if !strings.HasPrefix(l, key+"=") {
					out.WriteString(l)
				}
			}
			if s = out.String(); set {
				s += line + "\n"
			}
		}
		return s
	}}
}

// replaced replaces a text in a file.
func replaced(file, old, repl string) edits {
	return edits{file: func(s string) string { return strings.ReplaceAll(s, old, repl) }}
}

// healthyAs judges the healthy node, with changes, as a fault of these origins and frontends would be.
func healthyAs(t *testing.T, from, frontend string, do edits) *report.NodeReport {
	t.Helper()
	f := &faultdata.Fault{Node: "node1", Service: "faults", From: from, Frontend: frontend}
	return judgeFault(t, filepath.Join(recordedFaults, "iptables-neighbours", "healthy"), f, do)
}

// linksWith are the interfaces with another value of a flag of all ports.
func linksWith(flag, value, other string) edits {
	return replaced(snapshot.LinkFile, `"`+flag+`":`+other, `"`+flag+`":`+value)
}

// byEth1Too gives the route to the pods of another node a next hop by another interface.
func byEth1Too() edits {
	return replaced(snapshot.RouteFile, `"gateway":"10.79.0.12","dev":"eth0"`,
		`"nexthops":[{"gateway":"10.79.0.12","dev":"eth0","weight":1,"flags":[]},`+
			`{"gateway":"10.80.0.1","dev":"eth1","weight":1,"flags":[]}]`).
		and(replaced(snapshot.AddrFile, "[\n", `[{"ifindex":40,"ifname":"eth1","flags":["UP","LOWER_UP"],"mtu":1500,`+
			`"link_type":"ether","addr_info":[{"family":"inet","local":"10.80.0.11","prefixlen":24,"scope":"global"}]},`+"\n")).
		and(replaced(snapshot.LinkFile, "[\n", `[{"ifindex":40,"ifname":"eth1","flags":["UP","LOWER_UP"],"mtu":1500,`+
			`"link_type":"ether","linkinfo":{"info_kind":"veth"}},`+"\n")).
		and(replaced(snapshot.RouteFile, "[\n", `[{"dst":"10.80.0.0/24","dev":"eth1","scope":"link","flags":[]},`+
			`{"type":"local","dst":"10.80.0.11","dev":"eth1","table":"local","scope":"host","flags":[]},`+"\n")).
		and(replaced(snapshot.NeighbourFile, "[\n", `[{"dst":"10.80.0.1","dev":"eth1","lladdr":"0e:01:7b:75:7b:50",`+
			`"state":["STALE"]},`+"\n")).
		and(settingTo("net/ipv4/conf/eth1/forwarding=1", "net/ipv4/conf/eth1/rp_filter=0",
			"net/ipv4/conf/eth1/route_localnet=0", "net/ipv4/conf/eth1/src_valid_mark=0"))
}

// asThemselves lets pods keep their addresses.
func asThemselves() edits {
	return edits{snapshot.IPTablesNFTFile: func(s string) string {
		var out strings.Builder
		for line := range strings.Lines(s) {
			if !strings.Contains(line, "! -d 224.0.0.0/4") {
				out.WriteString(line)
			}
		}
		return out.String()
	}}
}

// TestSettingsInEveryBranch: a setting that stops packets is found whichever branch they may take. Where it stops them
// in some alone, or was not collected, the path is Unknown and says so.
func TestSettingsInEveryBranch(t *testing.T) {
	const (
		client, itself = "pod/faults-client-node1", "pod/faults-54ff54844f-gm94n"
		ip, local      = "10.97.199.129:80", "127.0.0.1:30358"
		routes         = "net/bridge/bridge-nf-call-iptables=0"
	)
	off := settingTo("net/ipv4/ip_forward=0", "net/ipv4/conf/all/forwarding=0", "net/ipv4/conf/cni0/forwarding=0",
		"net/ipv4/conf/eth0/forwarding=0")
	noPort := linksWith("hairpin", "false", "true")
	promiscuous := replaced(snapshot.LinkFile, `"promiscuity":0,"allmulti":0,"min_mtu":68,"max_mtu":65535,`+
		`"linkinfo":{"info_kind":"bridge"`, `"promiscuity":1,"allmulti":0,"min_mtu":68,"max_mtu":65535,`+
		`"linkinfo":{"info_kind":"bridge"`)
	without := func(words ...string) edits {
		return edits{snapshot.SysctlFile: func(s string) string {
			var out strings.Builder
			for line := range strings.Lines(s) {
				if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) {
					out.WriteString(line)
				}
			}
			return out.String()
		}}
	}
	for _, c := range []struct {
		name, from, frontend string
		do                   edits
		want                 report.Verdict
		code, has            string
		wrongIn              bool // with what is not known besides it is wrong, too
	}{
		{"nothing is forwarded", client, ip, off, report.Mismatch, ForwardingOff, "forwarding=0", true},
		{
			"no setting of forwarding", client, ip, without("forward"), report.Unknown, NotCollected,
			"net/ipv4/conf/cni0/forwarding was not collected", false,
		},
		{
			"the bridge calls no rules", client, ip, settingTo(routes), report.Mismatch, BridgeNetfilterOff,
			"10.245.1.5", true,
		},
		{
			"all ports are isolated", client, ip, linksWith("isolated", "true", "false"), report.Mismatch, PortsIsolated,
			"10.245.1.5", true,
		},
		{"no hairpin mode", itself, ip, noPort, report.Mismatch, HairpinOff, "hairpin", true},
		{"no hairpin mode, and the node routes", itself, ip, noPort.and(settingTo(routes)), report.Match, "", "", false},
		{"a promiscuous bridge", itself, ip, noPort.and(promiscuous), report.Mismatch, HairpinOff, "promiscuous", true},
		{"a promiscuous bridge of an older kernel", itself, ip, noPort.and(promiscuous).and(edits{
			"../../cluster/nodes.json": func(s string) string { return strings.ReplaceAll(s, `"6.18.`, `"6.1.`) },
		}), report.Unknown, HairpinOff, "promiscuous", false},
		{
			"the node routes within the bridge, and does not forward", itself, ip,
			settingTo(routes, "net/ipv4/conf/cni0/forwarding=0"), report.Mismatch, ForwardingOff, "cni0", true,
		},
		{
			"no route_localnet", "node", local, settingTo("net/ipv4/conf/all/route_localnet=0"), report.Mismatch,
			RouteLocalnetOff, "10.245.0.4", true,
		},
		{"no setting of route_localnet", "node", local, settingTo("net/ipv4/conf/all/route_localnet=0",
			"net/ipv4/conf/eth0/route_localnet"), report.Mismatch, RouteLocalnetOff, "cni0", false},
		{"no filter is read, and strict mode passes packets", client, ip, without("rp_filter"), report.Match, "", "", false},
		{
			"an interface of two does not forward", client, ip, byEth1Too().and(settingTo("net/ipv4/conf/eth1/forwarding=0")),
			report.Unknown, ForwardingOff, "eth1", false,
		},
		{"both interfaces do not forward", client, ip, byEth1Too().and(settingTo("net/ipv4/conf/eth1/forwarding=0",
			"net/ipv4/conf/eth0/forwarding=0")), report.Mismatch, ForwardingOff, "10.245.0.4", false},
		{"an interface of two does not forward, and nothing is masqueraded", client, ip, byEth1Too().and(asThemselves()).
			and(settingTo("net/ipv4/conf/eth1/forwarding=0")), report.Unknown, AnswerNotEvaluated, "eth1", false},
		{
			"two interfaces, and nothing is masqueraded", client, ip, byEth1Too().and(asThemselves()), report.Match, "", "",
			false,
		},
		{"two interfaces, and all is well", client, ip, byEth1Too(), report.Match, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := healthyAs(t, c.from, c.frontend, c.do)
			p := &r.Paths[0]
			i := slices.IndexFunc(p.Findings, func(f report.Finding) bool { return f.Code == c.code })
			if p.Verdict != c.want || c.code != "" && (i < 0 || !strings.Contains(textOf(t, p.Findings), c.has)) {
				t.Errorf("%s %+v, want %s %s", p.Verdict, p.Findings, c.want, c.code)
			}
			for i := range p.Findings {
				if twice := slices.Sorted(slices.Values(p.Findings[i].Endpoints)); len(slices.Compact(twice)) !=
					len(p.Findings[i].Endpoints) {
					t.Errorf("%s names an endpoint twice: %v", p.Findings[i].Code, p.Findings[i].Endpoints)
				}
			}
			for name, more := range complications {
				v := healthyAs(t, c.from, c.frontend, c.do.and(more)).Paths[0].Verdict
				if c.want == report.Mismatch && v != report.Unknown && v != report.Mismatch || c.wrongIn &&
					v != report.Mismatch {
					t.Errorf("with %s: %s", name, v)
				}
			}
		})
	}
}
