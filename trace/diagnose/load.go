// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/conntrack"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipset"
	"github.com/svcproxy/kubectl-svcproxy/trace/iptables"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipvs"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// node is everything known of the node under judgement.
type node struct {
	name    string
	cluster *snapshot.Cluster
	files   *snapshot.Node
	object  *corev1.Node

	rules *netfilter.Ruleset
	net   *host.Network
	sets  netfilter.SetLookup

	virtual   []ipvs.VirtualServer
	servers   map[frontendKey]*ipvs.VirtualServer // with an address, NodePorts too
	scheduler string                              // that kube-proxy is to use in ipvs mode
	excluded  []netip.Prefix                      // virtual servers that kube-proxy leaves alone
	exp       *expect.Node
	mode      report.Mode
	proxy     proxy

	services  map[types.NamespacedName]*corev1.Service
	pods      []pod
	podCIDRs  []netip.Prefix
	endpoints map[netip.Addr]bool // addresses of every endpoint of the cluster
	others    map[netip.Addr]bool // those of them that the API says this node does not have itself

	dialect *dialect                                        // of kube-proxy's mode
	have    map[netfilter.Family]map[netfilter.Backend]bool // the backends whose rules were read

	connections *conntrack.Table // nil where it was not collected
	probed      probed
	tracked     *snapshot.Tracked // while it was probed
	sockets     []host.Socket     // that listen on the node
	socketsRead bool

	answer []report.Finding // in place of a judgement: why there is none

	reasons      map[string]string           // why files were not read; nil: the snapshot does not tell
	unread       map[netfilter.Family]string // why a family cannot be judged
	programmed   map[netfilter.Family]bool   // kube-proxy's rules are there
	backends     map[netfilter.Family]map[netfilter.Backend]bool
	hasFrontends map[netfilter.Family]bool
	clusterIPs   map[netip.Addr]bool  // of every Service that kube-proxy serves
	frontends    map[frontendKey]bool // every frontend of every Service
	owners       map[frontendKey][]expect.Frontend
	twice        map[string]bool // addresses and source ranges that a Service lists more than once

	proxyPod bool   // the API has a pod of kube-proxy for the node
	restart  string // the command that makes kube-proxy write everything anew
}

// pod is a pod of this node with an address of its own.
type pod struct {
	name   string
	v4, v6 netip.Addr
}

func (p pod) address(v4 bool) netip.Addr {
	if v4 {
		return p.v4
	}
	return p.v6
}

// Reading is a node whose rules have been read, before any look at the cluster: both take long where there are many
// Services, and may be done side by side.
type Reading struct {
	node *node
	err  error
}

// Read reads a node's rules. What is wrong with them, Judge says.
func Read(files *snapshot.Node) *Reading {
	n := &node{name: files.Name, files: files, unread: map[netfilter.Family]string{}}
	err := n.readRules()
	if err == nil {
		err = n.readSets()
	}
	if err == nil {
		err = n.readVirtual()
	}
	return &Reading{n, err}
}

// load reads the rest of the node's files. The error says in one sentence why nothing can be claimed of the node.
func (r *Reading) load(cluster *snapshot.Cluster) (*node, error) {
	n := r.node
	n.cluster = cluster
	if err := n.findObject(); err != nil {
		return nil, err
	}
	if r.err != nil {
		return nil, r.err
	}
	n.indexCluster()
	if err := n.readHost(); err != nil {
		return nil, err
	}
	if err := n.readConnections(); err != nil {
		return nil, err
	}
	if err := n.readProbes(); err != nil {
		return nil, err
	}
	if err := n.readSockets(); err != nil {
		return nil, err
	}
	if err := n.rightMachine(); err != nil {
		return nil, err
	}
	cfg, err := n.config()
	if err != nil {
		return nil, err
	}
	if err := n.readProxy(cfg.Mode); err != nil {
		return nil, err
	}
	n.proxy.configMap = n.modeOfConfigMap(cfg.Source)
	n.mode = report.Mode{Configured: cfg.Mode, ConfigSource: cfg.Source, KubeProxyVersion: cfg.Version}
	n.describe()
	if r := n.replacedBy(); r != nil {
		n.answer = []report.Finding{n.replaced(r)}
		return nil, fmt.Errorf("node %s: %s", n.name, n.answer[0].Message)
	}
	if err := n.rightMode(&cfg); err != nil {
		return nil, err
	}
	n.expectation(cfg)
	n.survey()
	return n, nil
}

func (n *node) findObject() error {
	if slices.Contains(n.cluster.Missing, "nodes") {
		return nil
	}
	var names []string
	for _, o := range n.cluster.Nodes {
		if o.Name == n.name {
			n.object = o
			return nil
		}
		names = append(names, o.Name)
	}
	return fmt.Errorf("node %s: the cluster has no Node of that name (it has %s): the folder below nodes/ must bear the Node's name", n.name, cut(names, 8))
}

// rightMachine compares the addresses of the Node object with those on the interfaces.
func (n *node) rightMachine() error {
	if n.object == nil || n.net.Addresses() == nil {
		return nil
	}
	var want []string
	for _, a := range n.object.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		want = append(want, a.Address)
		if ip, err := netip.ParseAddr(a.Address); err == nil && slices.Contains(n.net.Addresses(), ip) {
			return nil
		}
	}
	if len(want) == 0 {
		return nil
	}
	return fmt.Errorf("node %s: ip-addr.json has none of the Node's addresses (%s): the files were taken on another machine", n.name, strings.Join(want, ", "))
}

// dump is a save file of the contract and what it is known to hold.
type dump struct {
	file    string
	backend netfilter.Backend // "" for the default one, which the file's header names
}

var dumps = map[netfilter.Family][]dump{
	netfilter.IPv4: {{"iptables-nft-save.txt", netfilter.BackendNFT}, {"iptables-legacy-save.txt", netfilter.BackendLegacy}, {"iptables-save.txt", ""}},
	netfilter.IPv6: {{"ip6tables-nft-save.txt", netfilter.BackendNFT}, {"ip6tables-legacy-save.txt", netfilter.BackendLegacy}, {"ip6tables-save.txt", ""}},
}

// isRules tells whether a file holds rules, without which a family cannot be judged.
func isRules(file string) bool {
	return file == rulesetFile || file == nftables.DumpFile || slices.ContainsFunc(slices.Concat(dumps[netfilter.IPv4], dumps[netfilter.IPv6]), func(d dump) bool { return d.file == file })
}

func (n *node) readRules() error {
	var err error
	if n.reasons, err = n.files.Unread(); err != nil {
		return err
	}
	n.rules = &netfilter.Ruleset{}
	families := []netfilter.Family{netfilter.IPv4, netfilter.IPv6}
	tables := make([][]*netfilter.Table, len(families))
	errs := make([]error, len(families))
	have := make([]map[netfilter.Backend]bool, len(families))
	var wg sync.WaitGroup
	for i, f := range families {
		wg.Go(func() { tables[i], have[i], errs[i] = n.readFamily(f) })
	}
	wg.Wait()
	n.have = map[netfilter.Family]map[netfilter.Backend]bool{}
	for i, f := range families {
		if errs[i] != nil {
			return fmt.Errorf("node %s: %w", n.name, errs[i])
		}
		n.rules.Tables = append(n.rules.Tables, tables[i]...)
		n.have[f] = have[i]
	}
	native, err := n.readNative(have[0][netfilter.BackendNFT], have[1][netfilter.BackendNFT])
	if err != nil {
		return err
	}
	n.rules.Tables = append(n.rules.Tables, native...)
	n.rules.Link()
	return nil
}

// noteUnread notes which families cannot be judged. The error is for a node of which none can.
func (n *node) noteUnread() error {
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if why := n.notRead(f, n.have[f]); why != "" {
			n.unread[f] = why
		}
	}
	if n.unread[netfilter.IPv4] == "" || n.unread[netfilter.IPv6] == "" {
		return nil
	}
	if n.reasons != nil || n.isNFT() || n.virtualNotRead() != "" {
		return fmt.Errorf("node %s: %s", n.name, n.unread[netfilter.IPv4])
	}
	return fmt.Errorf("node %s: neither iptables-save.txt nor ip6tables-save.txt was collected (or both are empty): there is nothing to walk", n.name)
}

// notRead says why the rules of a family cannot be judged; "" when they can. Where the collector says what it could not read, a save
// file that is not there is one without rules. One backend's rules prove nothing while the other's may hold anything. In nftables
// mode kube-proxy's rules are in nft-ruleset.json; without the save files iptables' own of iptables-nft are read from there, too.
func (n *node) notRead(f netfilter.Family, have map[netfilter.Backend]bool) string {
	if why := n.virtualNotRead(); why != "" {
		return why
	}
	if n.isNFT() && !n.hasRuleset() && n.unreadRuleset() == "" {
		return rulesetFile + " was not collected: that is where nftables mode has its rules"
	}
	for _, d := range dumps[f] {
		if why := n.reasons[d.file]; why != "" && !have[d.backend] && (d.backend != "" || len(have) == 0) {
			return d.file + " was not read: " + why
		}
	}
	if why := n.unreadRuleset(); why != "" {
		return rulesetFile + " was not read, and a table in it may stand in the way: " + why
	}
	if len(have) == 0 && n.reasons == nil && !n.isNFT() {
		return dumps[f][2].file + " was not collected"
	}
	return ""
}

// readFamily reads the save files of one family. The default one is passed over when its backend has a file of its own. An
// empty file is what a save command prints where there is no table at all; it counts as read only beside one that is not.
func (n *node) readFamily(f netfilter.Family) (tables []*netfilter.Table, have map[netfilter.Backend]bool, err error) {
	have = map[netfilter.Backend]bool{}
	for _, d := range dumps[f] {
		data, ok, err := n.files.File(d.file)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			continue
		}
		backend := d.backend
		if backend == "" {
			if _, b, ok := iptables.Header(data); ok {
				backend = b
			} else if len(have) > 0 {
				continue
			} else {
				backend = netfilter.BackendNFT
			}
			if have[backend] {
				continue
			}
		}
		ts, err := iptables.Parse(data, f, backend)
		if errors.Is(err, iptables.ErrEmpty) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.file, err)
		}
		have[backend] = true
		tables = append(tables, ts...)
	}
	return tables, have, nil
}

// rulesetFile has the tables of nftables.
const rulesetFile = "nft-ruleset.json"

// hasRuleset tells whether they were collected, as nft prints them or as the kernel has them.
func (n *node) hasRuleset() bool { return n.files.Has(nftables.DumpFile) || n.files.Has(rulesetFile) }

// unreadRuleset says why neither could be read; "" where one was, or where there is none.
func (n *node) unreadRuleset() string {
	if n.files.Has(nftables.DumpFile) {
		return ""
	}
	if why := n.reasons[rulesetFile]; why != "" || n.files.Has(rulesetFile) {
		return why
	}
	return n.reasons[nftables.DumpFile]
}

// readNative reads the nftables tables that no save file of iptables-nft has shown; v4 and v6 say whose was read.
func (n *node) readNative(v4, v6 bool) ([]*netfilter.Table, error) {
	// What the kernel has comes first: nft does not print all of it.
	file, parse := nftables.DumpFile, nftables.ParseDump
	if !n.files.Has(file) {
		file, parse = rulesetFile, nftables.Parse
	}
	data, ok, err := n.files.File(file)
	if err != nil || !ok {
		return nil, err
	}
	tables, err := parse(data, func(family, table string) bool {
		return nftables.IPTables(family, table) && (family == "ip" && v4 || family == "ip6" && v6)
	})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.name, err)
	}
	return tables, nil
}

// file reads an optional file; its absence is nil.
func (n *node) file(name string) ([]byte, error) {
	data, ok, err := n.files.File(name)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.name, err)
	}
	if !ok {
		return nil, nil
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

// readHost reads what is known of the node's network.
func (n *node) readHost() error {
	var f host.Files
	for _, x := range []struct {
		name string
		data *[]byte
	}{
		{"ip-addr.json", &f.Addr},
		{"ip-link.json", &f.Link},
		{"ip-route.json", &f.Route4},
		{"ip6-route.json", &f.Route6},
		{"ip-rule.json", &f.Rule4},
		{"ip6-rule.json", &f.Rule6},
		{"sysctl.txt", &f.Sysctl},
	} {
		var err error
		if *x.data, err = n.file(x.name); err != nil {
			return err
		}
	}
	for _, v4 := range []bool{true, false} {
		if a := n.internalIP(v4); a.IsValid() {
			f.NodeAddresses = append(f.NodeAddresses, a)
		}
	}
	f.OtherAddresses = n.others
	var errs []error
	if n.net, errs = host.Parse(f); len(errs) > 0 {
		return fmt.Errorf("node %s: %w", n.name, errs[0])
	}
	return nil
}

func (n *node) readSets() error {
	data, err := n.file("ipset-save.txt")
	if err != nil || data == nil {
		return err
	}
	sets, err := ipset.Parse(data)
	if err != nil {
		return fmt.Errorf("node %s: ipset-save.txt: %w", n.name, err)
	}
	n.sets = sets
	return nil
}

// rightMode finds out in which mode kube-proxy's rules are to be judged, and refuses a node whose Services another one programs. What
// the running kube-proxy says of itself counts most; then what the kernel holds, where it holds the rules of one mode only; then
// the configuration.
func (n *node) rightMode(cfg *kubeproxy.Config) error {
	held := n.held()
	mode := n.proxy.reported
	switch {
	case mode != "":
	case len(held) == 1:
		mode = held[0].mode
	default:
		mode = cfg.Mode
	}
	n.dialect = dialectOf(mode)
	switch {
	case slices.Contains(held, n.dialect):
		n.mode.Actual = n.dialect.mode
	case len(held) == 1:
		n.mode.Actual = held[0].mode
	}
	if !n.isNFT() {
		n.noteBackends()
	}
	if n.holdsUserspace() {
		n.mode.Actual = userspaceMode
	}
	cfg.Mode = n.dialect.mode
	n.scheduler, n.excluded = cfg.Scheduler, cfg.ExcludeCIDRs
	n.addVirtual()
	n.mode.LastSync = n.lastSync()
	return n.noteUnread()
}

// noteBackends notes in which of iptables' backends kube-proxy's rules are.
func (n *node) noteBackends() {
	for _, t := range n.rules.Tables {
		if t.Name != "nat" || t.Backend == netfilter.BackendNative || t.Chain(iptablesDialect.services) == nil {
			continue
		}
		if n.mode.Actual == "" && !n.isIPVS() {
			n.mode.Actual = iptablesDialect.mode
		}
		switch {
		case n.mode.Backend == "" || n.mode.Backend == string(t.Backend):
			n.mode.Backend = string(t.Backend)
		default:
			n.mode.Backend = "both"
		}
	}
}

// config reads kube-proxy's configuration, from the best source there is.
func (n *node) config() (kubeproxy.Config, error) {
	cfg, err := n.readConfig()
	if err != nil {
		return cfg, err
	}
	cfg.Version = n.metricLabel("kubernetes_build_info", "git_version")
	return cfg, nil
}

func (n *node) readConfig() (kubeproxy.Config, error) {
	for _, source := range []struct {
		file  string
		parse func([]byte) (kubeproxy.Config, error)
	}{{"configz.json", kubeproxy.ParseConfigz}, {"kube-proxy-config.yaml", kubeproxy.ParseConfig}} {
		data, err := n.file(source.file)
		if err != nil {
			return kubeproxy.Config{}, err
		}
		if len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		cfg, err := source.parse(data)
		if err != nil {
			return cfg, fmt.Errorf("node %s: %s: %w", n.name, source.file, err)
		}
		cfg.Source = source.file
		return cfg, nil
	}
	cfg, err := n.configMap()
	if err != nil || cfg == nil {
		return kubeproxy.DefaultConfig(), err
	}
	return *cfg, nil
}

// configMap reads kube-proxy's ConfigMap; nil where the cluster has none, or it was not collected.
func (n *node) configMap() (*kubeproxy.Config, error) {
	for _, cm := range n.cluster.ConfigMaps {
		if cm.Namespace != "kube-system" || cm.Name != "kube-proxy" {
			continue
		}
		cfg, err := kubeproxy.ParseConfigMap(cm)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", configMapName, err)
		}
		cfg.Source = configMapName
		return &cfg, nil
	}
	return nil, nil
}

// modeOfConfigMap returns the mode that the ConfigMap names, where the configuration is from elsewhere. A ConfigMap that cannot be
// read does not matter then.
func (n *node) modeOfConfigMap(source string) string {
	if cfg, err := n.configMap(); err == nil && cfg != nil && source != configMapName {
		return cfg.Mode
	}
	return ""
}

func (n *node) expectation(cfg kubeproxy.Config) {
	name := n.name
	if cfg.HostnameOverride != "" {
		name = cfg.HostnameOverride
	}
	n.exp = expect.New(expect.Inputs{
		Services: n.cluster.Services, Slices: n.cluster.EndpointSlices, Node: n.object, NodeName: name,
		Config: cfg, Addresses: n.net.Addresses(), PodNames: n.podNames(),
	})
	if len(n.podCIDRs) == 0 {
		n.podCIDRs = cfg.ClusterCIDRs
	}
}

// indexCluster looks up what origins and findings need of the cluster's objects.
func (n *node) indexCluster() {
	n.services = make(map[types.NamespacedName]*corev1.Service, len(n.cluster.Services))
	for _, s := range n.cluster.Services {
		n.services[expect.NameOf(s)] = s
	}
	n.endpoints, n.others = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	own4, own6 := n.internalIP(true), n.internalIP(false)
	for _, s := range n.cluster.EndpointSlices {
		for i := range s.Endpoints {
			for _, a := range s.Endpoints[i].Addresses {
				ip, err := netip.ParseAddr(a)
				if err != nil {
					continue
				}
				n.endpoints[ip] = true
				// An endpoint on a node has either an address of its own or that node's InternalIP (hostNetwork).
				if s.Endpoints[i].NodeName != nil && own4.IsValid() && ip != own4 && ip != own6 {
					n.others[ip] = true
				}
			}
		}
	}
	if n.object != nil {
		for _, c := range n.object.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(c); err == nil {
				n.podCIDRs = append(n.podCIDRs, p)
			}
		}
	}
	proxyPod := ""
	for _, p := range n.cluster.Pods {
		if p.Spec.NodeName != n.name {
			continue
		}
		if p.Labels["k8s-app"] == "kube-proxy" {
			proxyPod = p.Namespace + " delete pod " + p.Name
			n.proxyPod = true
		}
		if p.Spec.HostNetwork || p.Status.Phase != corev1.PodRunning {
			continue
		}
		x := pod{name: p.Namespace + "/" + p.Name}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil && a.Is4() {
				x.v4 = a
			} else if err == nil {
				x.v6 = a
			}
		}
		n.pods = append(n.pods, x)
	}
	slices.SortFunc(n.pods, func(a, b pod) int { return strings.Compare(a.name, b.name) })
	n.restart = "restart kube-proxy on " + n.name + " (kubectl -n kube-system delete pod of it there): that writes every rule anew"
	if proxyPod != "" {
		n.restart = "kubectl -n " + proxyPod + "   # writes every rule on " + n.name + " anew"
	}
}

func (n *node) podNames() map[netip.Addr]string {
	if len(n.cluster.Pods) == 0 {
		return nil
	}
	names := make(map[netip.Addr]string, len(n.cluster.Pods))
	for _, p := range n.cluster.Pods {
		if p.Spec.HostNetwork {
			continue // several pods share the node's address
		}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				names[a] = p.Namespace + "/" + p.Name
			}
		}
	}
	return names
}

func (n *node) podAddress(name string, v4 bool) netip.Addr {
	for _, p := range n.pods {
		if p.name == name {
			return p.address(v4)
		}
	}
	return netip.Addr{}
}

// internalIP returns the Node object's address of a family.
func (n *node) internalIP(v4 bool) netip.Addr {
	if n.object == nil {
		return netip.Addr{}
	}
	for _, a := range n.object.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && ip.Is4() == v4 {
			return ip
		}
	}
	return netip.Addr{}
}

// metricLines calls f with every sample of a metric in metrics.txt (Prometheus' text format).
func (n *node) metricLines(name string, f func(labels, value string)) {
	data, err := n.file("metrics.txt")
	if err != nil {
		return // metrics only adorn the header; a damaged file must not hide the rules
	}
	for line := range bytes.Lines(data) {
		rest, ok := bytes.CutPrefix(line, []byte(name))
		if !ok || len(rest) == 0 || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		labels, value, _ := strings.Cut(strings.TrimSpace(string(rest)), "} ")
		if rest[0] == ' ' {
			labels, value = "", labels
		}
		f(labels, value)
	}
}

func (n *node) metricLabel(name, label string) (value string) {
	n.metricLines(name, func(labels, _ string) {
		if _, after, ok := strings.Cut(labels, label+`="`); ok {
			value, _, _ = strings.Cut(after, `"`)
		}
	})
	return value
}

// lastSync returns when kube-proxy last wrote its rules, the older one of its families.
func (n *node) lastSync() string {
	var oldest float64
	n.metricLines("kubeproxy_sync_proxy_rules_last_timestamp_seconds", func(_, value string) {
		if v, err := strconv.ParseFloat(value, 64); err == nil && v > 0 && (oldest == 0 || v < oldest) {
			oldest = v
		}
	})
	if oldest == 0 {
		return ""
	}
	return time.Unix(int64(oldest), 0).UTC().Format(time.RFC3339)
}
