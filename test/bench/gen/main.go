// SPDX-License-Identifier: Apache-2.0

// Command gen multiplies a snapshot in iptables mode, for the benchmark: each Service gets copies with other names,
// addresses, node ports and chains, in the API objects and in the rules alike, so that a correct reader finds the
// copies as right as the originals. It also writes restore.txt, the rules in the form in which the benchmark loads them
// into a kernel.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	in := flag.String("in", "testdata/snapshots/scale-iptables", "snapshot to multiply")
	out := flag.String("out", "", "directory to write to; it gets snapshot/ and restore.txt")
	copies := flag.Int("copies", 2, "how many times each Service is there in the end")
	nfacct := flag.Bool("nfacct", true, "keep -m nfacct matches in restore.txt; without, they are left out")
	flag.Parse()
	if err := run(*in, *out, *copies, *nfacct); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(in, out string, copies int, nfacct bool) error {
	if out == "" || copies < 1 || copies > 8 {
		return errors.New("give -out, and -copies from 1 to 8")
	}
	services, err := readList(in, "services")
	if err != nil {
		return err
	}
	slices, err := readList(in, "endpointslices")
	if err != nil {
		return err
	}
	nodes, err := filepath.Glob(filepath.Join(in, "nodes", "*"))
	if err != nil {
		return err
	}
	if len(nodes) != 1 {
		return fmt.Errorf("%s has %d nodes, where one was expected", in, len(nodes))
	}
	rules, err := readFile(filepath.Join(nodes[0], "iptables-save.txt"))
	if err != nil {
		return err
	}

	used := nodePorts(services)
	allServices, allSlices := services, slices
	var renames []renames
	for n := 1; n < copies; n++ {
		r := newRenames(n, used)
		allServices = append(allServices, r.services(services)...)
		allSlices = append(allSlices, r.slices(slices)...)
		renames = append(renames, r)
	}

	if copies > 1 && len(allServices) == len(services) {
		return fmt.Errorf("%s has no Service outside the namespace default", in)
	}

	snap := filepath.Join(out, "snapshot")
	if err := os.CopyFS(snap, os.DirFS(in)); err != nil {
		return err
	}
	if err := writeList(snap, "services", allServices); err != nil {
		return err
	}
	if err := writeList(snap, "endpointslices", allSlices); err != nil {
		return err
	}
	multiplied := multiply(rules, renames)
	name := filepath.Join(snap, "nodes", filepath.Base(nodes[0]), "iptables-save.txt")
	if err := writeFile(name, multiplied); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "restore.txt"), loadable(multiplied, nfacct), 0o644) //nolint:gosec // test data
}

// renames maps what one copy of every Service changes. Nothing in it is meant for a real cluster: 11.0.0.0/8 and up
// only have to be different from the originals' 10.0.0.0/8.
type renames struct {
	n      int
	used   map[int64]bool
	chains map[string]string
	words  map[string]string // addresses, and Service port names as they are in comments
	ports  map[string]string // node ports
}

func newRenames(n int, used map[int64]bool) renames {
	return renames{
		n: n, used: used, chains: map[string]string{}, words: map[string]string{}, ports: map[string]string{},
	}
}

// skip leaves the API server's own Service alone: there is only one of it.
func skip(namespace string) bool { return namespace == "default" }

func (r renames) name(name string) string { return fmt.Sprintf("copy%d-%s", r.n, name) }

func (r renames) address(a string) string {
	rest, ok := strings.CutPrefix(a, "10.")
	if !ok {
		return a
	}
	b := strconv.Itoa(10+r.n) + "." + rest
	r.words[a] = b
	return b
}

func (r renames) nodePort(p int64) int64 {
	for q := int64(30000); q < 32768; q++ {
		if !r.used[q] {
			r.used[q] = true
			r.ports[strconv.FormatInt(p, 10)] = strconv.FormatInt(q, 10)
			return q
		}
	}
	panic("no node port is left")
}

func (r renames) services(items []object) []object {
	var out []object
	for _, item := range items {
		if skip(meta(item, "namespace")) {
			continue
		}
		c := clone(item).(object)
		ns, name := meta(c, "namespace"), meta(c, "name")
		c["metadata"].(object)["name"] = r.name(name)
		spec := c["spec"].(object)
		if ip, ok := spec["clusterIP"].(string); ok {
			spec["clusterIP"] = r.address(ip)
		}
		for i, ip := range list(spec["clusterIPs"]) {
			spec["clusterIPs"].([]any)[i] = r.address(ip.(string))
		}
		for _, p := range list(spec["ports"]) {
			p := p.(object)
			if np, ok := p["nodePort"].(json.Number); ok {
				n, _ := np.Int64()
				p["nodePort"] = r.nodePort(n)
			}
			portName, _ := p["name"].(string)
			protocol, _ := p["protocol"].(string)
			from, to := servicePort(ns, name, portName), servicePort(ns, r.name(name), portName)
			r.words[from] = to
			for _, kind := range []string{"SVC", "SVL", "EXT", "FW"} {
				r.chains[chain(kind, from, protocol)] = chain(kind, to, protocol)
			}
		}
		out = append(out, c)
	}
	return out
}

func (r renames) slices(items []object) []object {
	var out []object
	for _, item := range items {
		if skip(meta(item, "namespace")) {
			continue
		}
		c := clone(item).(object)
		ns := meta(c, "namespace")
		m := c["metadata"].(object)
		labels := m["labels"].(object)
		service, _ := labels["kubernetes.io/service-name"].(string)
		m["name"] = r.name(meta(c, "name"))
		labels["kubernetes.io/service-name"] = r.name(service)
		for _, e := range list(c["endpoints"]) {
			addresses := list(e.(object)["addresses"])
			for i, a := range addresses {
				from := a.(string)
				to := r.address(from)
				addresses[i] = to
				for _, p := range list(c["ports"]) {
					p := p.(object)
					portName, _ := p["name"].(string)
					r.endpoint(ns, service, portName, fmt.Sprint(p["protocol"]), fmt.Sprintf("%s:%v", from, p["port"]),
						fmt.Sprintf("%s:%v", to, p["port"]))
				}
			}
		}
		out = append(out, c)
	}
	return out
}

func (r renames) endpoint(ns, service, portName, protocol, from, to string) {
	r.words[from] = to
	original, copied := servicePort(ns, service, portName), servicePort(ns, r.name(service), portName)
	r.chains[chain("SEP", original, protocol, from)] = chain("SEP", copied, protocol, to)
}

// rename returns the rule or chain declaration of the copy, and whether it differs from the original.
func (r renames) rename(line string) (string, bool) {
	words := strings.Split(line, " ")
	own := false
	for i, w := range words {
		bare := strings.Trim(w, "\":\n")
		to, ok := r.chains[bare]
		if !ok {
			bare = strings.TrimSuffix(bare, "/32")
			to, ok = r.words[bare]
		}
		if !ok && i > 0 && words[i-1] == "--dport" {
			to, ok = r.ports[bare]
		}
		if ok {
			words[i] = strings.Replace(w, bare, to, 1)
			own = true
		}
	}
	return strings.Join(words, " "), own
}

// multiply puts the copies of each line behind it, so that a rule which has to be the last of its chain stays the last.
func multiply(rules []byte, copies []renames) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(rules)) {
		out.WriteString(line)
		for _, r := range copies {
			if c, ok := r.rename(line); ok {
				out.WriteString(c)
			}
		}
	}
	return out.Bytes()
}

// loadable declares each table's chains in random order. iptables-save 1.8 sorts chains in a way that is quadratic when
// the kernel lists them in order already (5 s for 25,000 chains instead of 0.4 s), as it does after loading a saved
// file. kube-proxy creates chains in no order, so this is what a real node has, and iptables-save at its best.
func loadable(rules []byte, nfacct bool) []byte {
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // the same order in every run
	var out bytes.Buffer
	var chains []string
	for line := range strings.Lines(string(rules)) {
		if strings.HasPrefix(line, ":KUBE-") {
			chains = append(chains, line)
			continue
		}
		random.Shuffle(len(chains), func(i, j int) { chains[i], chains[j] = chains[j], chains[i] })
		for _, c := range chains {
			out.WriteString(c)
		}
		chains = chains[:0]
		if !nfacct {
			line = withoutNfacct(line)
		}
		out.WriteString(line)
	}
	return out.Bytes()
}

func withoutNfacct(line string) string {
	before, rest, ok := strings.Cut(line, " -m nfacct --nfacct-name")
	if !ok {
		return line
	}
	_, rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	return before + " " + rest
}

func servicePort(namespace, name, port string) string {
	if port == "" {
		return namespace + "/" + name
	}
	return namespace + "/" + name + ":" + port
}

// chain computes the name that kube-proxy gives a chain (pkg/proxy/iptables, portProtoHash and
// servicePortEndpointChainName).
func chain(kind, servicePort, protocol string, endpoint ...string) string {
	sum := sha256.Sum256([]byte(servicePort + strings.ToLower(protocol) + strings.Join(endpoint, "")))
	return "KUBE-" + kind + "-" + base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// object is an API object, kept loose so that every field survives.
type object = map[string]any

func meta(o object, field string) string {
	v, _ := o["metadata"].(object)[field].(string)
	return v
}

func clone(v any) any {
	switch v := v.(type) {
	case object:
		c := make(object, len(v))
		for k, e := range v {
			c[k] = clone(e)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, e := range v {
			c[i] = clone(e)
		}
		return c
	}
	return v
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func nodePorts(services []object) map[int64]bool {
	used := map[int64]bool{}
	for _, s := range services {
		for _, p := range list(s["spec"].(object)["ports"]) {
			if np, ok := p.(object)["nodePort"].(json.Number); ok {
				n, _ := np.Int64()
				used[n] = true
			}
		}
	}
	return used
}

func readList(snapshot, name string) ([]object, error) {
	data, err := readFile(filepath.Join(snapshot, "cluster", name+".json"))
	if err != nil {
		return nil, err
	}
	var l struct {
		Items []object `json:"items"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&l); err != nil {
		return nil, fmt.Errorf("%s of %s: %w", name, snapshot, err)
	}
	return l.Items, nil
}

func writeList(snapshot, name string, items []object) error {
	list := object{"apiVersion": "v1", "kind": "List", "metadata": object{}, "items": items}
	data, err := json.MarshalIndent(list, "", "    ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(snapshot, "cluster", name+".json"), data)
}

// readFile reads name or, gzipped, name.gz.
func readFile(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	f, err := os.Open(name + ".gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("%s.gz: %w", name, err)
	}
	return io.ReadAll(z)
}

// writeFile replaces name, or name.gz where that is what there is.
func writeFile(name string, data []byte) error {
	if _, err := os.Stat(name + ".gz"); err != nil {
		return os.WriteFile(name, data, 0o644) //nolint:gosec // test data
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(name+".gz", z.Bytes(), 0o644) //nolint:gosec // test data
}
