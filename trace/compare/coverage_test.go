// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/compare"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// edit is a change of one file that a trace may judge differently, and how what is said of it begins.
type edit struct {
	file string
	do   func(string) string
	want []string
}

// behind is an edit that adds a text.
func behind(text string) func(string) string { return func(s string) string { return s + text } }

// other is an edit that makes a file another one.
func other(text string) func(string) string { return func(string) string { return text } }

const wireguard = "interface: wg0\n  public key: AAAA=\n  listening port: 51820\n\npeer: BBBB=\n" +
	"  endpoint: 10.79.0.12:51820\n  allowed ips: 10.245.1.0/24\n  latest handshake: 1 minute ago\n" +
	"  transfer: 1 KiB received, 2 KiB sent\n"

const tableRule = `[{"priority":100,"src":"all","table":"100"},{`

const matchall = "filter protocol all pref 1 matchall chain 0 handle 0x1 action order 1: gact action drop\n"

const rule4 = "*filter\n:INPUT DROP [0:0]\nCOMMIT\n"

// editsOfBoth are of files that a node and a pod have.
var editsOfBoth = []edit{
	{snapshot.IPTablesLegacyFile, other(rule4), []string{"rules "}},
	{snapshot.IP6TablesLegacyFile, other(rule4), []string{"rules "}},
	{snapshot.IP6TablesNFTFile, other(rule4), []string{"rules "}},
	{snapshot.IPTablesNFTFile, other(rule4), []string{"rules "}},
	{snapshot.IPSetFile, behind("create extra hash:ip family inet\nadd extra 192.0.2.1\n"), []string{"sets added"}},
	{snapshot.AddrFile, replaced(`"prefixlen":24`, `"prefixlen":25`), []string{"links "}},
	{snapshot.AddrFile, behind(`[{"address":"fd00:10::","prefixlen":32,"label":99}]`), []string{"links added"}},
	{snapshot.LinkFile, replaced(`"mtu":1500`, `"mtu":1300`), []string{"links changed"}},
	{snapshot.RouteFile, replaced(`"dst":"default"`, `"dst":"192.0.2.0/24"`), []string{"routes "}},
	{snapshot.Route6File, replaced(`"dst":"default"`, `"dst":"2001:db8::/64"`), []string{"routes "}},
	{snapshot.RuleFile, replaced("[{", tableRule), []string{"routing rules added"}},
	{snapshot.Rule6File, replaced("[{", tableRule), []string{"routing rules added"}},
	{snapshot.SysctlFile, behind("net/ipv4/conf/all/arp_ignore=8\n"), []string{"settings changed"}},
	{snapshot.ProgramsFile, other("tc eth0 ingress " + matchall), []string{"rules "}},
	{
		snapshot.XfrmFile, other("src 0.0.0.0/0 dst 0.0.0.0/0 \n\tdir out action block priority 0 ptype main \n"),
		[]string{"rules "},
	},
	{
		snapshot.NFTHooksFile,
		other("family ip {\n\thook input {\n\t\t 0000000000 chain ip filter INPUT [nf_tables]\n\t}\n}\n"),
		[]string{"rules "},
	},
	{snapshot.ListenFile, behind("tcp LISTEN 0 4096 *:9999 *:* \n"), []string{"listeners added"}},
	{
		snapshot.NFTFile, other(`{"nftables":[{"table":{"family":"inet","name":"x","handle":1}},{"chain":{"family":"inet",` +
			`"table":"x","name":"i","handle":1,"type":"filter","hook":"input","prio":0,"policy":"drop"}}]}`),
		[]string{"rules "},
	},
}

var editsOfNodes = []edit{
	{snapshot.IPTablesFile, other(rule4), nil}, // beside iptables-nft-save.txt nobody reads it
	{snapshot.IP6TablesFile, other(rule4), nil},
	{
		snapshot.NeighbourFile, replaced(`"dst":"10.79.0.12","dev":"eth0","lladdr":"92:0e:d1:c7:e8:57","state":["STALE"]`,
			`"dst":"10.79.0.12","dev":"eth0","lladdr":"02:00:00:00:00:99","state":["PERMANENT"]`), []string{"neighbours "},
	},
	{
		snapshot.IPVSFile, other("-A -t 10.97.0.1:443 -s rr\n-a -t 10.97.0.1:443 -r 10.79.0.11:6443 -m -w 1\n"),
		[]string{"virtual servers "},
	},
	{
		snapshot.BridgeFDBFile, replaced(`"dst":"10.79.0.11"`, `"dst":"10.79.0.11","port":9999`), []string{"tunnels "},
	},
	{
		snapshot.BridgeFDBFile, replaced(`"master":"cni0","state":""`, `"master":"cni0","state":"static"`),
		[]string{"bridge entries "},
	},
	{snapshot.LinkFile, replaced(`"local":"10.79.0.13"`, `"local":"10.79.0.99"`), []string{"tunnels changed"}},
	{snapshot.LinkFile, replaced(`"hairpin":true`, `"hairpin":false`), []string{"links changed"}},
	{snapshot.WireGuardFile, other(wireguard), []string{"WireGuard added"}},
	{snapshot.EbtablesFile, other("ebtables filter FORWARD -j DROP\n"), []string{"rules "}},
	{snapshot.ConfigzFile, func(s string) string {
		return strings.ReplaceAll(s, `"masqueradeAll":false`, `"masqueradeAll":true`)
	}, []string{"configuration "}},
	{snapshot.ProxyModeFile, other("ipvs"), nil},           // the rules show the mode, and a finding the difference
	{snapshot.ProxyConfigFile, behind("\nmode: [\n"), nil}, // configz comes first
	{snapshot.FlagsFile, other("kube-proxy\n--proxy-mode=ipvs\n"), nil},
	{snapshot.VersionsFile, replaced("6.", "5."), []string{"versions "}},
	{snapshot.ProcessesFile, other("1 / systemd\n"), []string{"configuration "}},
	{
		snapshot.JournalFile, other(`{"records":[{"plan":"0a1b2c3d","mode":"iptables","frontends":["10.97.0.10:80/TCP"]}]}`),
		[]string{"configuration added rules of program 0a1b2c3d"},
	},
	{snapshot.StoppedFile, other("76 T kubelet\n"), []string{"listeners "}}, // of listen.txt
}

var editsOfPods = []edit{
	{
		snapshot.NeighbourFile, other(`[{"dst":"10.245.2.1","dev":"eth0","lladdr":"02:00:00:00:00:99","state":["PERMANENT"]}]`),
		[]string{"neighbours "},
	},
	{snapshot.ResolvConfFile, other("nameserver 192.0.2.1\n"), []string{"resolver "}},
	{snapshot.PacketFile, behind("0000 3 3 0003 2 1 0 0 1\n"), []string{"listeners changed"}},
	{snapshot.StoppedFile, other("372 T echo\n"), []string{"listeners "}}, // of listen.txt
	{snapshot.IPTablesFile, other(rule4), []string{"rules "}},
	{snapshot.IP6TablesFile, other(rule4), []string{"rules "}},
}

// TestEveryFileIsComparedOrNamed: a change of any file that a snapshot can hold is said, of a node as of a pod, or the
// file is among those that have no part of their own, which docs/diff.md lists.
func TestEveryFileIsComparedOrNamed(t *testing.T) {
	page, err := os.ReadFile("../../docs/diff.md")
	if err != nil {
		t.Fatal(err)
	}
	for file := range compare.Beside {
		if !strings.Contains(string(page), "`"+file+"`") {
			t.Errorf("docs/diff.md does not say that %s is not compared", file)
		}
	}
	objects, n := snap.Node(t, filepath.Join(testdata, threeNodes), "node3")
	pod := podsOf["node3"]
	facts := func(n *snapshot.Node) *compare.Facts {
		state, err := nodestate.Load(n)
		if err != nil {
			t.Fatal(err)
		}
		return compare.Of(n, state, objects, judge.Node(judge.NewCluster(objects), state, all))
	}
	healthy := facts(n)
	for _, of := range []struct {
		name, in string
		files    []string
		edits    []edit
		change   func(file string, data []byte) *snapshot.Node
		read     *snapshot.Node
	}{
		{"node", "", snapshot.NodeFiles, slices.Concat(editsOfBoth, editsOfNodes), func(
			file string, data []byte,
		) *snapshot.Node {
			return n.With(file, data)
		}, n},
		{"pod", "pod " + pod, snapshot.PodFiles, slices.Concat(editsOfBoth, editsOfPods), func(
			file string, data []byte,
		) *snapshot.Node {
			return n.With("pods/"+strings.Replace(pod, "/", "_", 1)+"/"+file, data)
		}, n.Pod(pod)},
	} {
		tried := map[string]bool{}
		for _, e := range of.edits {
			tried[e.file] = true
			was, _, err := of.read.File(e.file)
			if err != nil {
				t.Fatal(err)
			}
			now := e.do(string(was))
			if now == string(was) {
				t.Errorf("%s: the edit of %s changes nothing", of.name, e.file)
				continue
			}
			d := compare.Captures(healthy, facts(of.change(e.file, []byte(now))))
			var got []string
			for _, line := range lines(&d) {
				if of.in == "" || strings.Contains(line, of.in) {
					got = append(got, line)
				}
			}
			for _, w := range e.want {
				if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, w) }) {
					t.Errorf("%s: after the edit of %s it says %q, want a line that begins with %q", of.name, e.file, got, w)
				}
			}
		}
		for _, file := range of.files {
			if !tried[file] && compare.Beside[file] == "" {
				t.Errorf("%s: %s is neither compared nor named", of.name, file)
			}
		}
	}
}
