// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// remembers judges objects and files with a Memory, and fails where a judgement without one says something else.
func remembers(t *testing.T, memory *Memory, c *snapshot.Cluster, n *snapshot.Node) {
	t.Helper()
	request := Request{Backwards: true, PerPathService: true}
	want := Files(c, n, request)
	request.Memory = memory
	got := Files(c, n, request)
	if a, b := asJSON(t, want), asJSON(t, got); !bytes.Equal(a, b) {
		t.Errorf("the report differs (fresh %+v, with memory %+v)\nfresh:       %s\nwith memory: %s", want.Summary,
			got.Summary, difference(a, b), difference(b, a))
	}
}

// fromThenTo remembers a judgement of the files, and judges them after a change of one: with text for every time.
func fromThenTo(t *testing.T, w *changingNode, file string, before, after []byte) {
	t.Helper()
	memory := &Memory{}
	for i, data := range [][]byte{before, before, after} {
		w.files[file] = data
		objects, files := w.now()
		remembers(t, memory, objects, files)
		if i == 1 && memory.Reused == 0 {
			t.Error("nothing is taken over, so that this shows nothing")
		}
	}
}

// The timeout of the sets that kube-proxy's session affinity has changes, and no rule.
func TestAnotherAffinityTimeoutIsSeen(t *testing.T) {
	w := newChanging(t, "nftables", "node1", 1)
	before := w.files[snapshot.NFTFile]
	fromThenTo(t, w, snapshot.NFTFile, before,
		regexp.MustCompile(`"timeout":\s*(\d+)`).ReplaceAll(before, []byte(`"timeout": 77`)))
}

// What decides a look-up, or an addition, beside a set's elements.
func TestAnotherDeclarationOfASetIsSeen(t *testing.T) {
	const (
		add = `{"set":{"op":"add","elem":{"payload":{"protocol":"ip","field":"saddr"}},"set":"@m"}},{"accept":null}`
		in  = `{"match":{"op":"==","left":{"meta":{"key":"iifname"}},"right":"@m"}},{"drop":null}`
	)
	for name, x := range map[string]struct{ rule, before, after string }{
		"statements": {
			add, `"ipv4_addr","flags":["dynamic"],"size":65535`,
			`"ipv4_addr","flags":["dynamic"],"size":65535,"stmt":[{"limit":{"rate":10,"per":"second"}}]`,
		},
		"size": {
			add, `"ipv4_addr","flags":["dynamic"],"size":65535`, `"ipv4_addr","flags":["dynamic"],"size":3`,
		},
		"a prefix of names that has the text of a name": {
			in, `"ifname","flags":["interval"],"elem":["cni-cni"]`, `"ifname","flags":["interval"],"elem":["cni*"]`,
		},
		"a name that ends in an asterisk": {
			in, `"ifname","flags":["interval"],"elem":["cni\\*"]`, `"ifname","flags":["interval"],"elem":["cni*"]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rules := func(set string) []byte {
				return []byte(`{"nftables":[{"metainfo":{"json_schema_version":1}},{"table":{"family":"inet","name":"fw"}},
					{"set":{"family":"inet","name":"m","table":"fw","handle":1,"type":` + set + `}},
					{"chain":{"family":"inet","table":"fw","name":"c","type":"filter","hook":"forward","prio":-10,
						"policy":"accept"}},
					{"rule":{"family":"inet","table":"fw","chain":"c","expr":[` + x.rule + `]}},
					{"rule":{"family":"inet","table":"fw","chain":"c","expr":[{"match":{"op":"==","left":
						{"meta":{"key":"mark"}},"right":77}},{"drop":null}]}}]}`)
			}
			fromThenTo(t, newChanging(t, "real-2node-iptables", "node1", 1), snapshot.NFTFile, rules(x.before), rules(x.after))
		})
	}
}

// The walk tries rules for several ports in turn with an answer, of which it knows no port: a mark between them counts.
func TestAnotherOrderOfRulesThatMarkIsSeen(t *testing.T) {
	const (
		mark = "-A FORWARD -p tcp -m tcp --dport 40000 -j MARK --set-xmark 0x80/0x80\n"
		drop = "-A FORWARD -p tcp -m tcp --dport 50000 -m mark --mark 0x80/0x80 -j DROP\n"
	)
	for name, rules := range map[string]struct{ before, after string }{
		"in a base chain": {drop + mark, mark + drop},
		"in another": {
			"-A MINE -p tcp -m tcp --dport 50000 -m mark --mark 0x80/0x80 -j DROP\n" +
				"-A MINE -p tcp -m tcp --dport 40000 -j MARK --set-xmark 0x80/0x80\n-A FORWARD -j MINE\n",
			"-A MINE -p tcp -m tcp --dport 40000 -j MARK --set-xmark 0x80/0x80\n" +
				"-A MINE -p tcp -m tcp --dport 50000 -m mark --mark 0x80/0x80 -j DROP\n-A FORWARD -j MINE\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newChanging(t, "real-2node-iptables", "node1", 1)
			for name := range w.files {
				if name == snapshot.IPTablesNFTFile || name == snapshot.IPTablesLegacyFile {
					delete(w.files, name)
				}
			}
			was := string(w.files[snapshot.IPTablesFile])
			with := func(rules string) []byte {
				table := strings.Index(was, "*filter\n") + len("*filter\n")
				at := table + strings.Index(was[table:], "-A ")
				return []byte(was[:table] + ":MINE - [0:0]\n" + was[table:at] + rules + was[at:])
			}
			fromThenTo(t, w, snapshot.IPTablesFile, with(rules.before), with(rules.after))
		})
	}
}

// recordedNeighbours returns a recorded node as the agent reads it: without pods.
func recordedNeighbours(
	t *testing.T, fault string, changes map[string]func(string) string,
) (*snapshot.Cluster, *snapshot.Node) {
	t.Helper()
	dir := filepath.Join(recordedFaults, "iptables-neighbours")
	f, err := faultdata.Read(filepath.Join(dir, fault+".fault"))
	if err != nil {
		t.Fatal(err)
	}
	c, n := openFault(t, filepath.Join(dir, "healthy"), f, changes)
	c.Pods, c.ConfigMaps, c.Missing = nil, nil, []string{"pods", "configmaps"}
	return c, n
}

const unusedNeighbour = "a-failed-neighbour-entry-of-an-address-that-nobody-uses"

// A pod of which somebody has told a bridge at which port it is, is there for certain only if it has just answered.
func TestStaleNeighbourAtASetPortIsSeen(t *testing.T) {
	const at = `"mac":"da:0b:8a:4b:9b:c6","ifname":"veth8f46cb60","flags":[],"master":"cni0","state":""`
	memory := &Memory{}
	for _, state := range []string{"REACHABLE", "REACHABLE", "STALE"} {
		c, n := recordedNeighbours(t, unusedNeighbour, map[string]func(string) string{
			"bridge-fdb.json": instead(at, strings.Replace(at, `"state":""`, `"state":"static"`, 1)),
			"ip-neigh.json": func(text string) string {
				return strings.NewReplacer("STALE", state, "REACHABLE", state).Replace(text) + "\n"
			},
		})
		remembers(t, memory, c, n)
	}
}

// svcproxy-e2e/faults-by-hand has a slice that names no nodes. Whether its endpoint 10.245.1.5 is a pod of this node is
// told by the slices of other Services alone.
func TestEndpointOnTheNodeByAnotherServicesSliceIsSeen(t *testing.T) {
	for _, fault := range []string{
		"the-bridge-has-lost-its-address", "the-interface-of-an-endpoint-is-down",
		"the-interface-of-an-endpoint-is-not-in-the-bridge",
	} {
		t.Run(fault, func(t *testing.T) {
			c, n := recordedNeighbours(t, fault, nil)
			before := *c
			before.EndpointSlices = slices.Clone(c.EndpointSlices)
			for k, s := range before.EndpointSlices {
				if strings.HasPrefix(s.Name, "faults-by-hand") {
					continue
				}
				s = s.DeepCopy()
				for i := range s.Endpoints {
					if s.Endpoints[i].Addresses[0] == "10.245.1.5" {
						s.Endpoints[i].NodeName = nil
					}
				}
				before.EndpointSlices[k] = s
			}
			memory := &Memory{}
			remembers(t, memory, &before, n)
			remembers(t, memory, c, n)
		})
	}
}

// Which Nodes would have to be asked is said again, though nothing has changed.
func TestWhoIsToBeAskedIsSaidAgain(t *testing.T) {
	c, n := recordedNeighbours(t, unusedNeighbour, map[string]func(string) string{
		"ip-neigh.json": strings.NewReplacer("STALE", "PROBE", "REACHABLE", "PROBE").Replace,
	})
	memory := &Memory{}
	remembers(t, memory, c, n)
	remembers(t, memory, c, n)
}

// A Node has another version with each heartbeat, and nothing is judged again for it.
func TestHeartbeatHasNothingJudgedAgain(t *testing.T) {
	w := newChanging(t, "nftables", "node1", 1)
	memory := &Memory{}
	for range 2 {
		objects, files := w.now()
		remembers(t, memory, objects, files)
	}
	all := memory.Reused
	objects, files := w.now()
	for i, node := range objects.Nodes {
		objects.Nodes[i] = node.DeepCopy()
		objects.Nodes[i].ResourceVersion = "1234567"
	}
	remembers(t, memory, objects, files)
	if all == 0 || memory.Reused != all {
		t.Errorf("%d paths are taken over after a heartbeat, %d before", memory.Reused, all)
	}
}
