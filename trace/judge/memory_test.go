// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// remembering are the captured nodes that change at random, and whether something can be taken over of them: not where
// a value of kube-proxy's is open.
var remembering = []struct {
	snapshot, node string
	reuses         bool
}{
	{"iptables", "node1", true},
	{"iptables-legacy", "node1", true},
	{"nftables", "node1", true},
	{"ipvs", "node1", true},
	{"real-2node-iptables", "node1", true},
	{"real-2node-nftables", "node1", true},
	{"v1.28-iptables", "node1", true},
	{"v1.31-nftables", "node3", true},
	{"../faults/iptables-neighbours/healthy", "node1", true},
}

// A judgement with a Memory has the report of a judgement without, whatever has changed in the API and on the node
// since the last one: byte for byte, at each of SVCPROXY_MEMORY_STEPS random changes in a row, which
// SVCPROXY_MEMORY_SEED chooses.
func TestAJudgementWithMemoryIsAFreshOne(t *testing.T) {
	steps := testutil.Count(t, "SVCPROXY_MEMORY_STEPS", 100)
	seed := uint64(testutil.Count(t, "SVCPROXY_MEMORY_SEED", 1))
	for _, x := range remembering {
		t.Run(x.snapshot, func(t *testing.T) {
			t.Parallel()
			w := newChanging(t, x.snapshot, x.node, seed)
			memory, request := &Memory{}, Request{Backwards: true, PerPathService: true}
			reused, anew := 0, 0
			for i := range steps {
				what := w.change()
				objects, files := w.now()
				request.Memory = nil
				want := Files(objects, files, request)
				request.Memory = memory
				memory.Reused = 0
				got := Files(objects, files, request)
				reused, anew = reused+memory.Reused, anew+memory.Anew
				if a, b := asJSON(t, want), asJSON(t, got); !bytes.Equal(a, b) {
					t.Fatalf("seed %d, step %d, after %s: the report differs\nfresh:       %s\nwith memory: %s",
						seed, i, what, difference(a, b), difference(b, a))
				}
			}
			t.Logf("%d steps: %d paths taken over, %d judged", steps, reused, anew)
			if x.reuses && reused == 0 {
				t.Error("nothing was taken over")
			}
		})
	}
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// difference is a text from a little before where it differs from another.
func difference(a, b []byte) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	from := max(0, i-200)
	return string(a[from:min(len(a), i+300)])
}

// changingNode is a captured node whose objects and files change at random.
type changingNode struct {
	*rand.Rand
	t       *testing.T
	name    string
	first   snapshot.Cluster
	objects snapshot.Cluster
	asRead  map[string][]byte
	files   map[string][]byte
	clock   int
}

func newChanging(t *testing.T, name, node string, seed uint64) *changingNode {
	t.Helper()
	c, n := openSnapshot(t, filepath.Join("testdata", "snapshots", name), node)
	w := &changingNode{
		Rand: rand.New(rand.NewPCG(seed, 0)), t: t, name: n.Name, first: *c, asRead: snap.Files(t, n),
	}
	delete(w.asRead, snapshot.ConntrackFile) // which no agent reads
	// As an agent has them.
	w.first.Pods, w.first.ConfigMaps, w.first.Missing = nil, nil, []string{"pods", "configmaps"}
	w.restore()
	return w
}

func (w *changingNode) restore() {
	w.objects, w.files = w.first, maps.Clone(w.asRead)
	w.objects.Services, w.objects.EndpointSlices = slices.Clone(w.first.Services), slices.Clone(w.first.EndpointSlices)
	w.objects.Nodes = slices.Clone(w.first.Nodes)
}

// now are the objects and files as they are.
func (w *changingNode) now() (*snapshot.Cluster, *snapshot.Node) {
	objects := w.objects
	objects.Services, objects.EndpointSlices = slices.Clone(objects.Services), slices.Clone(objects.EndpointSlices)
	objects.Nodes = slices.Clone(objects.Nodes)
	files := maps.Clone(w.files)
	// What changes all the time.
	w.clock++
	if m, ok := files[snapshot.MetricsFile]; ok {
		files[snapshot.MetricsFile] = fmt.Appendf(bytes.Clone(m),
			"\nkubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} %d\n", 1700000000+w.clock)
	}
	return &objects, snapshot.NewNode(w.name, files)
}

// change changes something, and says what. Changes add up, until all of them are undone.
func (w *changingNode) change() string {
	switch n := w.IntN(100); {
	case n < 12:
		w.restore()
		return "all was undone"
	case n < 20:
		return "nothing"
	case n < 42:
		return w.changeSlice()
	case n < 45:
		return w.addSlice()
	case n < 55:
		return w.changeService()
	case n < 59:
		return w.changeNode()
	case n < 78:
		return w.changeRules()
	case n < 82:
		return w.changeFile()
	default:
		return w.changeAny()
	}
}

func (w *changingNode) changeSlice() string {
	all := w.objects.EndpointSlices
	if len(all) == 0 {
		return "nothing: there is no slice"
	}
	i := w.IntN(len(all))
	s := all[i].DeepCopy()
	what := "slice " + s.Namespace + "/" + s.Name
	if len(s.Endpoints) == 0 {
		s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.244.7.7"}, NodeName: &w.objects.Nodes[0].Name}}
		all[i] = s
		return what + ": an endpoint"
	}
	k := w.IntN(len(s.Endpoints))
	e := &s.Endpoints[k]
	flip := func(b **bool) { *b = new(*b != nil && !**b) }
	switch w.IntN(10) {
	case 0:
		s.Endpoints = slices.Delete(s.Endpoints, k, k+1)
		what += ": an endpoint less"
	case 1:
		e.Addresses = []string{fmt.Sprintf("10.244.%d.%d", w.IntN(3), 2+w.IntN(40))}
		what += ": address " + e.Addresses[0]
	case 2:
		flip(&e.Conditions.Ready)
		what += ": ready"
	case 3:
		flip(&e.Conditions.Serving)
		flip(&e.Conditions.Terminating)
		what += ": serving, terminating"
	case 4:
		e.NodeName = &w.objects.Nodes[w.IntN(len(w.objects.Nodes))].Name
		what += ": on " + *e.NodeName
	case 5:
		s.Endpoints = append(s.Endpoints, *e.DeepCopy())
		last := &s.Endpoints[len(s.Endpoints)-1]
		last.Addresses = []string{fmt.Sprintf("10.244.%d.%d", w.IntN(3), 2+w.IntN(40))}
		what += ": one more, " + last.Addresses[0]
	case 6:
		if len(s.Ports) > 0 && s.Ports[0].Port != nil {
			*s.Ports[0].Port++
		}
		what += ": port"
	case 7:
		w.objects.EndpointSlices = slices.Delete(slices.Clone(all), i, i+1)
		return what + ": gone"
	case 8: // the address of another Service's endpoint
		o := all[w.IntN(len(all))]
		if len(o.Endpoints) > 0 && o.AddressType == s.AddressType {
			e.Addresses = slices.Clone(o.Endpoints[0].Addresses)
		}
		what += ": as in " + o.Name
	default: // the node's own, or that of another
		o := w.objects.Nodes[w.IntN(len(w.objects.Nodes))]
		if len(o.Status.Addresses) > 0 && s.AddressType == discoveryv1.AddressTypeIPv4 {
			e.Addresses = []string{o.Status.Addresses[0].Address}
		}
		what += ": at " + o.Name
	}
	all[i] = s
	return what
}

// ruleFiles are those of which changeRules changes lines, or elements.
var ruleFiles = []string{
	snapshot.IPTablesFile, snapshot.IPTablesNFTFile, snapshot.IPTablesLegacyFile, snapshot.IP6TablesFile,
	snapshot.IP6TablesNFTFile, snapshot.IP6TablesLegacyFile, snapshot.NFTFile, snapshot.IPVSFile, snapshot.IPSetFile,
}

func (w *changingNode) has(files []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(f string) bool { return len(w.files[f]) == 0 })
}

func (w *changingNode) changeRules() string {
	files := w.has(ruleFiles)
	if len(files) == 0 {
		return "nothing"
	}
	file := files[w.IntN(len(files))]
	if file == snapshot.NFTFile {
		return file + ": " + w.changeNFT()
	}
	return file + ": " + w.changeLine(file, func(line string) bool {
		return strings.HasPrefix(line, "-A ") || strings.HasPrefix(line, "add ") || strings.HasPrefix(line, "TCP ") ||
			strings.HasPrefix(line, "  -> ") || strings.HasPrefix(line, "UDP ")
	})
}

// changeLine changes one line of a file.
func (w *changingNode) changeLine(file string, is func(string) bool) string {
	lines := strings.SplitAfter(string(w.files[file]), "\n")
	var at []int
	for i, line := range lines {
		if is(line) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return "nothing"
	}
	i, k := at[w.IntN(len(at))], at[w.IntN(len(at))]
	what := strings.TrimSpace(lines[i])
	switch w.IntN(6) {
	case 0:
		lines = slices.Delete(lines, i, i+1)
		what = "without " + what
	case 1:
		lines = slices.Insert(lines, i, lines[i])
		what = "twice " + what
	case 2:
		lines[i], lines[k] = lines[k], lines[i]
		what = "exchanged " + what + " and " + strings.TrimSpace(lines[i])
	case 3, 4:
		what = "in another order: " + what + " and its like"
		w.reorder(lines, i)
	default:
		what = "changed " + what
		lines[i] = w.otherNumber(lines[i])
	}
	w.files[file] = []byte(strings.Join(lines, ""))
	return what
}

// otherNumber changes a digit.
func (w *changingNode) otherNumber(line string) string {
	var at []int
	for i, r := range line {
		if r >= '0' && r <= '9' {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return line
	}
	i := at[w.IntN(len(at))]
	return line[:i] + string(rune('0'+w.IntN(10))) + line[i+1:]
}

// changeNFT changes an object of nft's listing.
func (w *changingNode) changeNFT() string {
	var list struct {
		All []json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(w.files[snapshot.NFTFile], &list); err != nil {
		w.t.Fatal(err)
	}
	if len(list.All) < 2 {
		return "nothing"
	}
	if w.IntN(4) == 0 {
		if what := w.changeLoops(list.All); what != "" {
			w.files[snapshot.NFTFile] = asJSON(w.t, list)
			return what
		}
	}
	i := 1 + w.IntN(len(list.All)-1)
	for range 20 { // rules mostly
		if bytes.Contains(list.All[i], []byte(`"rule"`)) {
			break
		}
		i = 1 + w.IntN(len(list.All)-1)
	}
	what := fmt.Sprintf("%.200s", list.All[i])
	switch w.IntN(4) {
	case 0:
		list.All = slices.Delete(list.All, i, i+1)
		what = "without " + what
	case 1:
		list.All = slices.Insert(list.All, i, list.All[i])
		what = "twice " + what
	case 2:
		k := 1 + w.IntN(len(list.All)-1)
		list.All[i], list.All[k] = list.All[k], list.All[i]
		what = "exchanged " + what
	default:
		if other := []byte(w.otherNumber(string(list.All[i]))); json.Valid(other) {
			list.All[i] = other
		}
		what = "changed " + what
	}
	w.files[snapshot.NFTFile] = asJSON(w.t, list)
	return what
}

// changeLoops changes an element of the set of hairpin connections; "" where there is none.
func (w *changingNode) changeLoops(objects []json.RawMessage) string {
	type element struct {
		Concat []any `json:"concat"`
	}
	for i, o := range objects {
		var x map[string]map[string]any
		if !bytes.Contains(o, []byte(`"hairpin-connections"`)) || json.Unmarshal(o, &x) != nil || x["set"] == nil {
			continue
		}
		var elements []element
		if err := json.Unmarshal(asJSON(w.t, x["set"]["elem"]), &elements); err != nil || len(elements) == 0 {
			continue
		}
		k := w.IntN(len(elements))
		what := fmt.Sprint("hairpin connection ", elements[k].Concat)
		other := element{slices.Clone(elements[k].Concat)}
		switch w.IntN(4) {
		case 0:
			elements = slices.Delete(elements, k, k+1)
			what += " is gone"
		case 1: // that of another endpoint, for which the rules lead elsewhere
			other.Concat[0] = w.otherNumber(fmt.Sprint(other.Concat[0]))
			other.Concat[1] = other.Concat[0]
			elements = append(elements, other)
			what += fmt.Sprint(" and ", other.Concat)
		case 2:
			other.Concat[1] = w.otherNumber(fmt.Sprint(other.Concat[1]))
			elements = append(elements, other)
			what += fmt.Sprint(" and ", other.Concat)
		default:
			elements[k].Concat[0] = w.otherNumber(fmt.Sprint(other.Concat[0]))
			elements[k].Concat[1] = elements[k].Concat[0]
			what += fmt.Sprint(" is ", elements[k].Concat)
		}
		x["set"]["elem"] = elements
		objects[i] = asJSON(w.t, x)
		return what
	}
	return ""
}

func (w *changingNode) changeFile() string {
	files := w.has([]string{
		snapshot.SysctlFile, snapshot.RouteFile, snapshot.Route6File, snapshot.AddrFile, snapshot.ListenFile,
		snapshot.LinkFile, snapshot.RuleFile, snapshot.ConfigzFile, snapshot.ProcessesFile, snapshot.UnreadFile,
	})
	if len(files) == 0 {
		return "nothing"
	}
	file := files[w.IntN(len(files))]
	if w.IntN(4) == 0 {
		delete(w.files, file)
		return "without " + file
	}
	return file + ": " + w.changeLine(file, func(string) bool { return true })
}

// An endpoint of this node that comes or goes (in nftables mode its hairpin connection is an element of a set that a
// rule of every path names) leaves the paths to others as they are, and has its own judged.
func TestAnEndpointOfTheNodeTouchesItsPathsAlone(t *testing.T) {
	w := newChanging(t, "nftables", "node1", 1)
	memory, request := &Memory{}, Request{Backwards: true, PerPathService: true}
	judge := func() report.NodeReport {
		t.Helper()
		objects, files := w.now()
		request.Memory = nil
		want := Files(objects, files, request)
		request.Memory = memory
		got := Files(objects, files, request)
		if a, b := asJSON(t, want), asJSON(t, got); !bytes.Equal(a, b) {
			t.Fatalf("the report differs\nfresh:       %s\nwith memory: %s", difference(a, b), difference(b, a))
		}
		return got
	}
	judge()
	all := memory.Anew
	judge()
	usual := memory.Reused
	const gone = `{"concat": ["10.244.1.19", "10.244.1.19", "tcp", 8080]}`
	listing := string(w.files[snapshot.NFTFile])
	compact := regexp.MustCompile(`\{\s*"concat":\s*\[\s*"10\.244\.1\.19",\s*"10\.244\.1\.19",\s*"tcp",\s*8080\s*\]\s*\},?\s*`)
	if len(compact.FindAllString(listing, -1)) != 1 {
		t.Fatalf("the listing does not have %s once", gone)
	}
	w.files[snapshot.NFTFile] = []byte(compact.ReplaceAllString(listing, ""))
	judge()
	t.Logf("of %d paths %d are taken over where nothing has changed, %d without %s", all, usual, memory.Reused, gone)
	if memory.Reused < usual*3/4 || memory.Reused >= usual {
		t.Errorf("%d of %d paths are taken over", memory.Reused, usual)
	}
}
