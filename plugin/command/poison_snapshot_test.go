// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// allFields prints every string of a report by a template.
const allFields = `-o=go-template={{range $k, $v := .}}{{$k}}={{$v}}{{"\n"}}{{end}}`

// offlineCommands are what is run of each poisoned snapshot, DIR: every command that reads one, in every format. The
// Service is named by its address, as its name may be poisoned.
func offlineCommands() (out [][]string) {
	add := func(command string, formats ...string) {
		for _, f := range formats {
			out = append(out, append(strings.Fields(command+" --snapshot DIR"), f))
		}
	}
	object := []string{
		"-o=table", "-o=wide", "-o=json", "-o=yaml", "-o=name", "-o=jsonpath={}", "-o=jsonpath-as-json={}",
		`-o=jsonpath={range .nodes[*]}{.node} {.error}{"\n"}{end}{.service}`, allFields,
	}
	drawn := append(slices.Clone(object), "-o=html", "-o=mermaid")
	add("trace 10.96.21.191", drawn...)
	add("trace web -n shop --from pod/client", "-o=wide")
	add("trace 10.96.21.191 -n shop --from pod/checkout-5f7d9c8b64-8rk2s --end-to-end", "-o=html", "-o=mermaid")
	add("verify -A --all-nodes", append(drawn, "--show-all")...)
	add("mode", append(object, "-o=html")...)
	add("resolve 10.96.21.191 --node worker-1", object...)
	add("verify wbe -n shop", "-o=table")
	return out
}

// named says which output of a command is looked at.
func named(args []string) string {
	format := strings.TrimPrefix(args[len(args)-1], "-o=")
	format, _, _ = strings.Cut(format, "=")
	return args[0] + " -o " + format
}

// leaf is a string of a type: the fields that lead to it.
type leaf []int

// leavesOf lists the strings of a type, those of elements and keys included, with their names.
func leavesOf(typ reflect.Type) map[string]leaf {
	out := map[string]leaf{}
	var walk func(t reflect.Type, name string, path leaf, depth int)
	walk = func(t reflect.Type, name string, path leaf, depth int) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(t.Elem(), name, path, depth)
		case reflect.Map:
			if t.Elem().Kind() == reflect.String {
				out[name] = path
			}
		case reflect.String:
			out[name] = path
		case reflect.Struct:
			// Times and quantities are no text; what is deeper, such as a Pod's volumes, no output can show one by one.
			if depth == 5 || strings.HasPrefix(name, ".Spec.Volumes") || t == reflect.TypeFor[metav1.Time]() {
				return
			}
			for i := range t.NumField() {
				if f := t.Field(i); f.IsExported() {
					walk(f.Type, name+"."+f.Name, append(slices.Clone(path), i), depth+1)
				}
			}
		default:
		}
	}
	walk(typ, "", nil, 0)
	return out
}

// poisonLeaf poisons a string of a value: what is there is continued, and what is not there is made.
func poisonLeaf(v reflect.Value, path leaf) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		poisonLeaf(v.Elem(), path)
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			poisonLeaf(v.Index(i), path)
		}
	case reflect.Map:
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		for _, k := range v.MapKeys() {
			v.SetMapIndex(k, reflect.ValueOf(v.MapIndex(k).String()+poison).Convert(v.Type().Elem()))
		}
		v.SetMapIndex(reflect.ValueOf(poison).Convert(v.Type().Key()), reflect.ValueOf(poison).Convert(v.Type().Elem()))
	case reflect.String:
		v.SetString(v.String() + poison)
	case reflect.Struct:
		poisonLeaf(v.Field(path[0]), path[1:])
	default:
	}
}

// poisonedCopy is the snapshot with files replaced or added.
func poisonedCopy(t *testing.T, base string, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(dir, strings.TrimSuffix(name, "json")+"yaml"))
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// clusterOf reads the objects of a snapshot.
func clusterOf(t *testing.T, dir string) *snapshot.Cluster {
	t.Helper()
	_, c := snap.Open(t, dir)
	return c
}

// kind is a kind of objects, as a snapshot and an API server have it.
type kind struct {
	name, apiVersion, kind string
	objects                func(c *snapshot.Cluster) any // a slice of pointers
}

var objectKinds = []kind{
	{"services", "v1", "Service", func(c *snapshot.Cluster) any { return c.Services }},
	{"endpointslices", "discovery.k8s.io/v1", "EndpointSlice", func(c *snapshot.Cluster) any { return c.EndpointSlices }},
	{"nodes", "v1", "Node", func(c *snapshot.Cluster) any { return c.Nodes }},
	{"pods", "v1", "Pod", func(c *snapshot.Cluster) any { return c.Pods }},
	{"configmaps", "v1", "ConfigMap", func(*snapshot.Cluster) any {
		return []*corev1.ConfigMap{{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: "kube-system"},
			Data:       map[string]string{"config.conf": "mode: ipt\x1b[32mables\n"},
		}}
	}},
}

// list encodes objects of a kind as a List, with a poison in fields of each.
func (k *kind) list(t *testing.T, c *snapshot.Cluster, paths ...leaf) []byte {
	t.Helper()
	objects := reflect.ValueOf(k.objects(c))
	var items []any
	for i := range objects.Len() {
		o := objects.Index(i).MethodByName("DeepCopy").Call(nil)[0]
		for _, path := range paths {
			poisonLeaf(o, path)
		}
		data, err := json.Marshal(o.Interface())
		if err != nil {
			t.Fatal(err)
		}
		var item map[string]any
		if err := json.Unmarshal(data, &item); err != nil {
			t.Fatal(err)
		}
		item["apiVersion"], item["kind"] = k.apiVersion, k.kind
		items = append(items, item)
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": k.apiVersion, "kind": k.kind + "List", "metadata": map[string]any{"resourceVersion": "1"},
		"items": items,
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// untyped makes the List of an API server one of a snapshot.
func (k *kind) untyped(list []byte) []byte {
	return bytes.Replace(list, []byte(`"kind":"`+k.kind+`List"`), []byte(`"kind":"List"`), 1)
}

// typeOf is the type of a kind's objects.
func (k *kind) typeOf() reflect.Type {
	return reflect.TypeOf(k.objects(&snapshot.Cluster{})).Elem().Elem()
}

// Every string of every object of the API, with the commands and formats in turn: those that outputs show as they are
// alone and with all commands, others a few at a time.
func TestPoisonedObjects(t *testing.T) {
	var o outputs
	commands := offlineCommands()
	c := clusterOf(t, broken)
	turn := 0
	for i := range objectKinds {
		k := &objectKinds[i]
		leaves := leavesOf(k.typeOf())
		if len(leaves) < 10 {
			t.Errorf("%s have only %d strings", k.name, len(leaves))
		}
		together := 6
		if k.name == "pods" {
			together = 24 // most are of no use to this program
		}
		for _, names := range groupsOf(slices.Sorted(maps.Keys(leaves)), together) {
			var paths []leaf
			for _, name := range names {
				paths = append(paths, leaves[name])
			}
			list := k.list(t, c, paths...)
			dir := poisonedCopy(t, broken, map[string][]byte{"cluster/" + k.name + ".json": k.untyped(list)})
			runs := 4
			if len(names) == 1 {
				runs = len(commands)
			}
			for range runs {
				args := slices.Clone(commands[turn%len(commands)])
				turn++
				what := named(args)
				args[slices.Index(args, "DIR")] = dir
				o.run(t, what, k.name+strings.Join(names, " "), args...)
			}
		}
	}
	o.came(t, "trace -o table", "trace -o wide", "trace -o json", "trace -o yaml", "trace -o html", "trace -o mermaid",
		"trace -o jsonpath", "trace -o go-template", "verify -o table", "verify -o wide", "verify -o name",
		"verify -o json", "verify -o yaml", "verify -o html", "verify -o table (stderr)", "resolve -o table",
		"resolve -o wide", "resolve -o name", "resolve -o yaml", "resolve -o json", "resolve -o go-template",
		"mode -o wide", "mode -o json")
}

// groupsOf makes groups of names, with those that are printed alone.
func groupsOf(names []string, together int) (groups [][]string) {
	rest := slices.DeleteFunc(slices.Clone(names), printed)
	for _, n := range names {
		if printed(n) {
			groups = append(groups, []string{n})
		}
	}
	return slices.AppendSeq(groups, slices.Chunk(rest, together))
}

// printed tells whether a field is one that outputs show as it is.
func printed(name string) bool {
	return slices.Contains([]string{
		".ObjectMeta.Name", ".ObjectMeta.Namespace", ".Spec.Ports.Name", ".Ports.Name", ".Endpoints.TargetRef.Name",
		".Endpoints.NodeName", ".Spec.NodeName",
	}, name)
}

// snapshotsOfModes are snapshots of every mode.
var snapshotsOfModes = []string{"iptables", "iptables-legacy", "ipvs", "nftables", "real-2node-iptables"}

// Every file of a node: every string of those of JSON, and of those of text words all over the file, with the commands
// in turn. And files that are nothing but poison.
func TestPoisonedNodeFiles(t *testing.T) {
	var o outputs
	turn := 0
	for _, base := range append(snapshotsOfModes, broken) {
		if base != broken {
			base = filepath.Join("..", "..", "testdata", "snapshots", base)
		}
		s, err := snapshot.Open(base)
		if err != nil {
			t.Fatal(err)
		}
		node := s.NodeNames()[0]
		n, err := s.Node(node)
		if err != nil {
			t.Fatal(err)
		}
		services := clusterOf(t, base).Services
		commands := [][]string{
			{"verify", "-A", "-o=wide"},
			{"verify", "-A", "-o=html"},
			{"mode", "-o=wide"},
			{"verify", "-A", "-o=yaml"},
			{"mode", allFields},
			{"trace", "svc/" + services[0].Name, "-n", services[0].Namespace, "-o=wide"},
			{"verify", "-A", "-o=mermaid"},
			{"verify", "-A", "-o=table"},
		}
		for _, file := range snapshot.NodeFiles {
			data, ok, err := n.File(file)
			if err != nil {
				t.Fatal(err)
			}
			variants := map[string][]byte{}
			if base == broken {
				variants["all"] = []byte(poison)
				variants["unread"] = fmt.Appendf(nil, "{%q: %s}", "ip-addr.json", quoted(t, poison))
			}
			if ok {
				maps.Copy(variants, poisonedFile(t, data))
			}
			names := slices.Sorted(maps.Keys(variants))
			for i, variant := range names {
				if i%(1+len(names)/8) != 0 {
					continue // about eight of each file
				}
				dir := poisonedCopy(t, base, map[string][]byte{"nodes/" + node + "/" + file: variants[variant]})
				_ = os.Remove(filepath.Join(dir, "nodes", node, file+".gz"))
				args := slices.Clone(commands[turn%len(commands)])
				turn++
				o.run(t, named(args), file+" "+variant, append(args, "--node", node, "--snapshot", dir)...)
			}
		}
	}
	o.came(t, "verify -o wide", "verify -o html", "mode -o wide", "verify -o yaml", "mode -o go-template",
		"trace -o wide", "verify -o mermaid", "verify -o table", "verify -o wide (stderr)")
}

// quoted is a JSON string.
func quoted(t *testing.T, s string) []byte {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// poisonedFile poisons a file in several places, one in each variant.
func poisonedFile(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	var tree any
	if json.Unmarshal(data, &tree) == nil {
		paths := map[string]bool{}
		jsonStrings(tree, "", "", func(path string) { paths[path] = true })
		for path := range paths {
			var copied any
			if err := json.Unmarshal(data, &copied); err != nil {
				t.Fatal(err)
			}
			changed, err := json.Marshal(jsonStrings(copied, "", path, func(string) {}))
			if err != nil {
				t.Fatal(err)
			}
			out[path] = changed
		}
		return out
	}
	// Words of text, of each kind of line: by the word that the line begins with.
	lines := strings.SplitAfter(string(data), "\n")
	seen := map[string]int{}
	for i, line := range lines {
		words := strings.Fields(line)
		for k := range words {
			place := fmt.Sprintf("%.12s/%d/%.6s", words[0], k, words[max(k-1, 0)])
			seen[place]++
			if seen[place] > 1 || len(out) >= 60 {
				continue
			}
			for name, p := range map[string]string{"": inLine, "/newlines": poison} {
				changed := slices.Clone(lines)
				changed[i] = strings.Replace(line, words[k], strings.TrimSuffix(words[k], `"`)+p, 1)
				if strings.HasSuffix(words[k], `"`) {
					changed[i] = strings.Replace(changed[i], p, p+`"`, 1)
				}
				out[place+name] = []byte(strings.Join(changed, ""))
			}
		}
	}
	return out
}

// jsonStrings calls f with the path of every string of a tree, keys included, and poisons those of one path.
func jsonStrings(v any, at, path string, f func(string)) any {
	switch v := v.(type) {
	case string:
		f(at)
		if at == path && path != "" {
			return v + poison
		}
	case []any:
		for i := range v {
			v[i] = jsonStrings(v[i], at+"[]", path, f)
		}
	case map[string]any:
		for _, k := range slices.Collect(maps.Keys(v)) {
			v[k] = jsonStrings(v[k], at+"."+k, path, f)
			key := at + "." + k + " as key"
			f(key)
			if key == path {
				v[k+poison] = v[k]
				delete(v, k)
			}
		}
	}
	return v
}

// The names of nodes are those of folders, and their files may be called anything.
func TestPoisonedNames(t *testing.T) {
	var o outputs
	// A file's name has no "/" and no NUL.
	hostile := strings.ReplaceAll(inLine, "/", "") + "\n" + forged + "1\r" + forged + "2"
	dir := poisonedCopy(t, broken, map[string][]byte{"nodes/" + hostile + "/iptables-save.txt": []byte("*nat\nCOMMIT\n")})
	for _, args := range offlineCommands() {
		what := named(args)
		args[slices.Index(args, "DIR")] = dir
		o.run(t, what, "the name of a node", args...)
	}
	for _, args := range [][]string{
		{"trace", "web" + poison, "-n", "shop", "--snapshot", dir},
		{"trace", "web", "-n", "shop" + poison, "--snapshot", dir},
		{"trace", "web", "-n", "shop", "--node", "n" + poison, "--snapshot", dir},
		{"trace", "web", "-n", "shop", "--from", "pod/n" + poison, "--snapshot", dir},
		{"trace", "web", "-n", "shop", "--snapshot", dir + poison},
		{"trace", "web", "-n", "shop", "--selector", poison, "--snapshot", dir},
		{"trace", "web", "-n", "shop", "--" + poison},
		{"trace", "web", "-n", "shop", "-o", "x" + poison, "--snapshot", dir},
		{"trace", "web", "-n", "shop", "-o", "jsonpath={.nodes[0].x" + poison, "--snapshot", dir},
		{"trace", "web", "-n", "shop", "-o", "go-template={{.x" + poison, "--snapshot", dir},
		{"verify", "-n", "shop" + poison, "--snapshot", dir},
		{"resolve", "web", "-n", "shop", "--node", "n" + poison, "--snapshot", dir},
		{poison},
		{"trace", poison, poison},
		{"version", poison},
		{"version", "-o", poison},
		{"cleanup", poison},
		{"dump", poison},
		{"help", poison},
		{"__complete", "trace", "--snapshot", dir, "--node", ""},
	} {
		o.run(t, args[0]+" (argument)", "an argument", args...)
	}
	o.came(t, "trace -o table (stderr)", "trace (argument) (stderr)", "verify (argument) (stderr)", "mode -o table",
		"mode -o name", "trace -o json (stderr)")
}
