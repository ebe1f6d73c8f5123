// SPDX-License-Identifier: Apache-2.0

// Package oracle lets kube-proxy write its rules for random clusters, and compares the project's expectation with
// them. go.mod has the newest version of kube-proxy; oracle.sh tests others. api_*_test.go and detect_*_test.go are all
// that depends on which, by the shape of kube-proxy's API.
package oracle

import (
	"bytes"
	"flag"
	"net"
	"net/netip"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/proxy/healthcheck"
	fakeipset "k8s.io/kubernetes/pkg/proxy/ipvs/ipset/testing"
	fakeipvs "k8s.io/kubernetes/pkg/proxy/ipvs/util/testing"
	proxyutiltest "k8s.io/kubernetes/pkg/proxy/util/testing"
	fakeiptables "k8s.io/kubernetes/pkg/util/iptables/testing"
	fakeexec "k8s.io/utils/exec/testing"

	"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

func TestOracle(t *testing.T) {
	quiet(t)
	gen.Run(t, version(), kubeproxy.IPTables, write, gates()...)
}

// families are those that a proxier is made for each.
var families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

func quiet(t *testing.T) {
	t.Helper()
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	if err := fs.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL", "-alsologtostderr=false"}); err != nil {
		t.Fatal(err)
	}
	klog.SetOutput(new(discard))
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func write(w *gen.Cluster) (r gen.Rules, err error) {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(w.Config.FeatureGates); err != nil {
		return r, err
	}
	if r.IPv4, err = writeFamily(w, corev1.IPv4Protocol, 0); err != nil {
		return r, err
	}
	r.IPv6, err = writeFamily(w, corev1.IPv6Protocol, 1)
	return r, err
}

// version is that of k8s.io/kubernetes, as the path of its source files has it: a test's build information has no
// modules.
func version() string {
	file, _ := runtime.FuncForPC(reflect.ValueOf(healthcheck.NewFakeServiceHealthServer).Pointer()).FileLine(0)
	_, rest, _ := strings.Cut(file, "k8s.io/kubernetes@")
	v, _, ok := strings.Cut(rest, "/")
	if !ok {
		panic("the version of k8s.io/kubernetes is not in the path " + file)
	}
	return v
}

// gates are the feature gates that decide what is programmed and that this version lets one set.
func gates() (names []string) {
	for _, g := range expect.FeatureGates(version()) {
		if !g.Locked {
			names = append(names, g.Name)
		}
	}
	return names
}

// TestFeatureGates compares what the expectation knows of this version's feature gates with its own list. Versions
// leave out gates that were locked long ago.
func TestFeatureGates(t *testing.T) {
	all := utilfeature.DefaultMutableFeatureGate.GetAll()
	known := map[featuregate.Feature]bool{}
	for _, g := range expect.FeatureGates(version()) {
		known[featuregate.Feature(g.Name)] = true
		spec, ok := all[featuregate.Feature(g.Name)]
		if !ok && !g.Locked || ok && (spec.Default != g.On || spec.LockToDefault != g.Locked) {
			t.Errorf("%s: %s is expected to be %t, locked: %t; it is %+v, there: %t", version(), g.Name, g.On, g.Locked, spec, ok)
		}
	}
	for _, g := range expect.FeatureGates("") {
		if name := featuregate.Feature(g.Name); !known[name] && all[name] != (featuregate.FeatureSpec{}) {
			t.Errorf("%s has %s, which is not expected: %+v", version(), g.Name, all[name])
		}
	}
}

// proxier is what the proxiers of all modes and versions have.
type proxier interface {
	OnServiceAdd(service *corev1.Service)
	OnServiceSynced()
	OnEndpointSliceAdd(slice *discoveryv1.EndpointSlice)
	OnEndpointSlicesSynced()
}

// fakes take the place of the kernel.
type fakes struct {
	tables  *fakeiptables.FakeIPTables
	servers *fakeipvs.FakeIPVS
	sets    *fakeipset.FakeIPSet
}

func newFakes(at int) *fakes {
	f := &fakes{fakeiptables.NewFake(), fakeipvs.NewFake(), fakeipset.NewFake(ipsetVersion)}
	if at == 1 {
		f.tables = fakeiptables.NewIPv6Fake()
	}
	return f
}

// save is what iptables-save would print.
func (f *fakes) save() ([]byte, error) {
	var buf bytes.Buffer
	err := f.tables.SaveInto("", &buf)
	return buf.Bytes(), err
}

func nodeIP(w *gen.Cluster, at int) net.IP { return net.ParseIP(w.Node.Status.Addresses[at].Address) }

// isolate puts fakes in the place of what reaches out to the machine, in a proxier of any mode.
func isolate(p proxier, w *gen.Cluster) {
	set(p, "networkInterfacer", network(w))
	withoutConntrack(p)
	set(p, "serviceHealthServer", healthcheck.NewFakeServiceHealthServer())
}

// feed tells a proxier of all that its informers would: with the last word it writes its rules.
func feed(p proxier, w *gen.Cluster) {
	switch p := p.(type) {
	case interface {
		OnTopologyChange(labels map[string]string)
	}: // from 1.34 on
		p.OnTopologyChange(w.Node.Labels)
	case interface{ OnNodeAdd(node *corev1.Node) }:
		p.OnNodeAdd(w.Node)
	default:
		panic("nothing tells this kube-proxy of its node")
	}
	services, slices := w.Seen()
	for _, s := range services {
		p.OnServiceAdd(s)
	}
	for _, s := range slices {
		p.OnEndpointSliceAdd(s)
	}
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
}

func writeFamily(w *gen.Cluster, family corev1.IPFamily, at int) ([]byte, error) {
	f := newFakes(at)
	p, err := newIPTables(w, family, at, f)
	if err != nil {
		return nil, err
	}
	isolate(p, w)
	if has(p, "nfacct") { // from 1.31 on
		clear(p, "nfacct")
	}
	feed(p, w)
	return f.save()
}

// network has the addresses of the cluster's node.
func network(w *gen.Cluster) *proxyutiltest.FakeNetwork {
	n := proxyutiltest.NewFakeNetwork()
	var addresses []net.Addr
	for _, a := range w.Addresses() {
		addresses = append(addresses, &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())})
	}
	n.AddInterfaceAddr(&net.Interface{Name: "all"}, addresses)
	return n
}

// detector is getLocalDetectors of cmd/kube-proxy/app/server_linux.go, which cannot be imported (up to 1.30
// getLocalDetector, up to 1.28 in server_others.go).
func detector(w *gen.Cluster, at int) localDetector {
	c := &w.Config
	var cidrs []netip.Prefix
	switch c.DetectLocalMode {
	case kubeproxy.DetectBridge:
		return byBridge(c.BridgeInterface)
	case kubeproxy.DetectNamePrefix:
		return byPrefix(c.InterfaceNamePrefix)
	case "", kubeproxy.DetectClusterCIDR:
		cidrs = c.ClusterCIDRs
	case kubeproxy.DetectNodeCIDR:
		for _, s := range w.Node.Spec.PodCIDRs {
			cidrs = append(cidrs, netip.MustParsePrefix(s))
		}
	}
	for _, p := range cidrs {
		if p.Addr().Is6() == (at == 1) {
			return byCIDR(p.String())
		}
	}
	return byNothing()
}

// noPrograms keeps kube-proxy from running programs of the machine.
var noPrograms = &fakeexec.FakeExec{
	LookPathFunc: func(name string) (string, error) { return "", &exec.Error{Name: name, Err: exec.ErrNotFound} },
}

// sysctls keeps kube-proxy from the machine's own.
type sysctls struct{}

func (sysctls) GetSysctl(string) (int, error) { return 0, nil }
func (sysctls) SetSysctl(string, int) error   { return nil }

// set puts a fake in the place of what reaches out to the machine; p is a proxier.
func set(p any, field string, fake any) { place(p, field).Set(reflect.ValueOf(fake)) }

// has tells whether a proxier of this version has a field.
func has(p any, field string) bool { return reflect.ValueOf(p).Elem().FieldByName(field).IsValid() }

func clear(p any, field string) { place(p, field).SetZero() }

func place(p any, field string) reflect.Value {
	f := reflect.ValueOf(p).Elem().FieldByName(field)
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}
