// SPDX-License-Identifier: Apache-2.0

//go:build bench

package oracle

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxyconfig "k8s.io/kubernetes/pkg/proxy/apis/config"
	"k8s.io/kubernetes/pkg/proxy/conntrack"
	"k8s.io/kubernetes/pkg/proxy/healthcheck"
	"k8s.io/kubernetes/pkg/proxy/iptables"
	"k8s.io/kubernetes/pkg/proxy/ipvs"
	"k8s.io/kubernetes/pkg/proxy/ipvs/ipset"
	ipvsutil "k8s.io/kubernetes/pkg/proxy/ipvs/util"
	"k8s.io/kubernetes/pkg/proxy/nftables"
	proxyutil "k8s.io/kubernetes/pkg/proxy/util"
	proxyutiltest "k8s.io/kubernetes/pkg/proxy/util/testing"
	utiliptables "k8s.io/kubernetes/pkg/util/iptables"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/program"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

const (
	benchServices  = 1000
	benchEndpoints = 4
	benchRuns      = 9
)

// cluster is that many Services, with that many endpoints each, one of them on the node.
func cluster() (services []*corev1.Service, endpoints []*discoveryv1.EndpointSlice) {
	for i := range benchServices {
		name := fmt.Sprintf("web-%d", i)
		ip := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String() //nolint:gosec // below 65536
		services = append(services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
				Ports:      []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
			},
		})
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: name},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{
				Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP),
			}},
		}
		for k := range benchEndpoints {
			n := i*benchEndpoints + k
			address := netip.AddrFrom4([4]byte{10, 244, byte(n >> 8), byte(n)}) //nolint:gosec // below 65536
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{address.String()},
				NodeName:   new([]string{"node", "other"}[min(k, 1)]),
				Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			})
		}
		endpoints = append(endpoints, s)
	}
	return services, endpoints
}

// handler is what every proxier is told by.
type handler interface {
	OnServiceAdd(*corev1.Service)
	OnEndpointSliceAdd(*discoveryv1.EndpointSlice)
	OnServiceSynced()
	OnEndpointSlicesSynced()
}

// runs is how often each is timed; BENCH_RUNS is another number.
func runs(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("BENCH_RUNS"), strconv.Itoa(benchRuns)))
	if err != nil || n < 1 {
		t.Fatalf("BENCH_RUNS is %q: it may be a number from 1 on", os.Getenv("BENCH_RUNS"))
	}
	return n
}

// TestProgramAgainstKubeProxy programs the same Services as kube-proxy's own sync writes, into the kernel, and
// prints both times, medians of some runs, and the median of what they are to each other in a run. It is a
// benchmark, and fails for nothing but errors: make bench. In the virtual machine, which has IPVS, it is that mode:
// make bench-ipvs.
func TestProgramAgainstKubeProxy(t *testing.T) {
	quiet(t)
	if !testutil.Isolate(t, syscall.CLONE_NEWNET, "iptables-nft", "nft") {
		return
	}
	services, endpointSlices := cluster()
	config := func() *kubeproxyconfig.KubeProxyConfiguration {
		return &kubeproxyconfig.KubeProxyConfiguration{
			SyncPeriod: metav1.Duration{Duration: time.Hour}, MinSyncPeriod: metav1.Duration{Duration: time.Hour},
			IPTables: kubeproxyconfig.KubeProxyIPTablesConfiguration{
				MasqueradeBit:      new(int32(14)),
				LocalhostNodePorts: new(false),
			},
			NFTables: kubeproxyconfig.KubeProxyNFTablesConfiguration{MasqueradeBit: new(int32(14))},
		}
	}
	detector, address := proxyutil.NewDetectLocalByCIDR("10.244.0.0/16"), net.ParseIP("192.0.2.10")
	kubeProxies := map[string]func(ctx context.Context) (handler, error){
		wire.IPTables: func(ctx context.Context) (handler, error) {
			return iptables.NewProxier(ctx, config(), corev1.IPv4Protocol, utiliptables.New(utiliptables.ProtocolIPv4),
				sysctls{}, detector, "node", address, nil, nil, false)
		},
		wire.NFTables: func(ctx context.Context) (handler, error) {
			return nftables.NewProxier(ctx, config(), corev1.IPv4Protocol, detector, "node", address, nil, nil, false)
		},
		wire.IPVS: func(ctx context.Context) (handler, error) {
			return ipvs.NewProxier(ctx, config(), corev1.IPv4Protocol, utiliptables.New(utiliptables.ProtocolIPv4),
				ipvsutil.New(), ipset.New(), sysctls{}, detector, "node", address, nil, nil, false)
		},
	}
	modes := []string{wire.IPTables, wire.NFTables}
	if _, err := os.Stat("/run/vm/inside"); err == nil {
		modes = []string{wire.IPVS}
		run(t, "modprobe", "-a", "ip_vs", "ip_vs_rr", "nf_conntrack")
	}
	for _, mode := range modes {
		var theirs, ours []time.Duration
		var ratios []float64
		for range runs(t) {
			flush(t)
			p, err := kubeProxies[mode](t.Context())
			if err != nil {
				t.Fatal(err)
			}
			set(p, "networkInterfacer", proxyutiltest.NewFakeNetwork())
			set(p, "conntrack", conntrack.NewFake())
			set(p, "serviceHealthServer", healthcheck.NewFakeServiceHealthServer())
			begin := time.Now()
			for _, s := range services {
				p.OnServiceAdd(s)
			}
			for _, s := range endpointSlices {
				p.OnEndpointSliceAdd(s)
			}
			p.OnServiceSynced()
			p.OnEndpointSlicesSynced() // syncs before it returns
			theirs = append(theirs, time.Since(begin))

			flush(t)
			prog, err := program.New(program.Options{Root: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			write := func(services []*corev1.Service, dryRun bool) {
				n := expect.New(expect.Inputs{
					Services: services, Slices: endpointSlices, NodeName: "node",
					Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")},
					Config: kubeproxy.Config{
						Source: "configz.json", Mode: mode,
						ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, MasqueradeBit: 14, Version: "v1.37.1",
					},
				})
				what, _, err := plan.For(n, plan.Request{Services: services, Mark: n.MasqueradeMark()})
				if err != nil {
					t.Fatal(err)
				}
				params := &program.Request{Plan: what, ProgramOptions: wire.ProgramOptions{
					Mode: mode, TTL: time.Minute, Run: "bench", By: "bench", DryRun: dryRun,
					Allow: plan.Askable(),
				}}
				if wire.NeedsBackend(mode) {
					params.Backend = wire.BackendNFT
				}
				if _, err := prog.Apply(t.Context(), params); err != nil {
					t.Fatal(err)
				}
			}
			// What the programs can do kube-proxy has found out before it syncs; here a dry run does, as ahead of
			// every question to go on.
			write(services[:1], true)
			begin = time.Now()
			write(services, false)
			ours = append(ours, time.Since(begin))
			if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
				t.Fatal(err)
			}
			ratios = append(ratios, ours[len(ours)-1].Seconds()/theirs[len(theirs)-1].Seconds())
		}
		t.Logf("%s, %d Services of %d endpoints: program %v, kube-proxy's own sync %v, ratio %.2f", mode, benchServices,
			benchEndpoints,
			median(ours).Round(time.Millisecond), median(theirs).Round(time.Millisecond), median(ratios))
	}
}

func median[T cmp.Ordered](list []T) T {
	slices.Sort(list)
	return list[len(list)/2]
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// flush takes away what kube-proxy has left, in whichever mode.
func flush(t *testing.T) {
	t.Helper()
	run(t, "nft", "flush", "ruleset")
	if _, err := net.InterfaceByName(ipvsDevice); err == nil {
		run(t, "ipvsadm", "-C")
		run(t, "ipset", "destroy")
		run(t, "ip", "link", "del", ipvsDevice)
	}
}
