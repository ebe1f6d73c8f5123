// SPDX-License-Identifier: Apache-2.0

// Package oracle lets kube-proxy write its rules for random clusters, and compares the project's expectation with
// them. go.mod has one version of kube-proxy, v1.33.mod another: api_*_test.go is all that depends on which.
package oracle

import (
	"bytes"
	"flag"
	"net"
	"reflect"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/proxy/conntrack"
	"k8s.io/kubernetes/pkg/proxy/healthcheck"
	fakeipset "k8s.io/kubernetes/pkg/proxy/ipvs/ipset/testing"
	fakeipvs "k8s.io/kubernetes/pkg/proxy/ipvs/util/testing"
	proxyutil "k8s.io/kubernetes/pkg/proxy/util"
	proxyutiltest "k8s.io/kubernetes/pkg/proxy/util/testing"
	fakeiptables "k8s.io/kubernetes/pkg/util/iptables/testing"

	"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen"
)

func TestOracle(t *testing.T) {
	quiet(t)
	gen.Run(t, version, "iptables", write, absent...)
}

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

// proxier is what the proxiers of all modes and versions have.
type proxier interface {
	nodeHandler
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
	set(p, "conntrack", conntrack.NewFake())
	set(p, "serviceHealthServer", healthcheck.NewFakeServiceHealthServer())
}

// feed tells a proxier of all that its informers would: with the last word it writes its rules.
func feed(p proxier, w *gen.Cluster) {
	nodeSeen(p, w)
	services, slices := w.Seen(oneSelector)
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
	clear(p, "nfacct")
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

// detector is getLocalDetectors of cmd/kube-proxy/app/server_linux.go, which cannot be imported.
func detector(w *gen.Cluster, family corev1.IPFamily) proxyutil.LocalTrafficDetector {
	c := &w.Config
	cidrs := w.Node.Spec.PodCIDRs
	switch c.DetectLocalMode {
	case "BridgeInterface":
		return proxyutil.NewDetectLocalByBridgeInterface(c.BridgeInterface)
	case "InterfaceNamePrefix":
		return proxyutil.NewDetectLocalByInterfaceNamePrefix(c.InterfaceNamePrefix)
	case "", "ClusterCIDR":
		cidrs = nil
		for _, p := range c.ClusterCIDRs {
			cidrs = append(cidrs, p.String())
		}
	}
	if of := proxyutil.MapCIDRsByIPFamily(cidrs)[family]; len(of) > 0 {
		return proxyutil.NewDetectLocalByCIDR(of[0].String())
	}
	return proxyutil.NewNoOpLocalDetector()
}

// sysctls keeps kube-proxy from the machine's own.
type sysctls struct{}

func (sysctls) GetSysctl(string) (int, error) { return 0, nil }
func (sysctls) SetSysctl(string, int) error   { return nil }

// set puts a fake in the place of what reaches out to the machine; p is a proxier.
func set(p any, field string, fake any) { place(p, field).Set(reflect.ValueOf(fake)) }

func clear(p any, field string) { place(p, field).SetZero() }

func place(p any, field string) reflect.Value {
	f := reflect.ValueOf(p).Elem().FieldByName(field)
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}
