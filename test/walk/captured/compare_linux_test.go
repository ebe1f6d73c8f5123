// SPDX-License-Identifier: Apache-2.0

package captured

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func outcomes(p report.Path) []string {
	var out []string
	for _, o := range p.Actual.Outcomes {
		s := o.Action
		if o.Action == "DNAT" {
			s += " " + net.JoinHostPort(o.Endpoint.Address, strconv.Itoa(int(o.Endpoint.Port)))
		}
		if o.Masquerade {
			s += " masq"
		}
		out = append(out, s)
	}
	return out
}

// captured opens a captured cluster, and its first node.
func captured(t *testing.T, name string) (*snapshot.Cluster, *snapshot.Node) {
	t.Helper()
	c, node := snap.Node(t, "../../../testdata/snapshots/"+name, "node1")
	// A pod that is no endpoint stands for all pods of the node: packets from an endpoint's address would come from where
	// the test listens.
	c.Pods = append(c.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "client"},
		Spec:       corev1.PodSpec{NodeName: "node1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{
			{IP: "10.244.1.254"}, {IP: "fd00:10:244:1:ffff:ffff:ffff:fffe"},
		}},
	})
	return c, node
}

func compareCaptured(t *testing.T, name string) {
	t.Helper()
	c, node := captured(t, name)
	r := judge.Files(c, node, judge.Request{Matching: true, PerPathService: true})
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	w := newNodeNetwork(t, node, remoteSources(&r))
	w.listen(r.Paths)
	w.compare(name, r.Paths)
}

// remoteSources are the addresses beyond the node that packets come from.
func remoteSources(r *report.NodeReport) []netip.Addr {
	var sources []netip.Addr
	for _, p := range r.Paths {
		if p.Origin.Kind != "node" && p.Origin.Address != "" {
			sources = append(sources, netip.MustParseAddr(p.Origin.Address))
		}
	}
	slices.SortFunc(sources, netip.Addr.Compare)
	return slices.Compact(sources)
}

// compare sends packets on every path, and compares what becomes of them with the walk.
func (w *nodeNetwork) compare(name string, paths []report.Path) {
	t := w.t
	t.Helper()
	compared, packets, unsent := 0, 0, 0
	for _, p := range paths {
		if p.Origin.Address == "" {
			continue // nothing to send: kube-proxy leaves the Service alone
		}
		from := "beyond"
		if p.Origin.Kind == "node" {
			from = "node"
		}
		want := outcomes(p)
		for range sends {
			pr := probe{
				p.Frontend.Protocol, p.Origin.Address, p.Frontend.Address, uint16(p.Frontend.Port), 0, 2 * time.Millisecond,
			}
			got := w.send(from, pr)
			if got == "Drop" && !slices.Contains(want, got) {
				pr.Patience = 200 * time.Millisecond // a busy machine: the refusal is still under way
				got = w.send(from, pr)
			}
			other, masked := strings.CutSuffix(got, " masq")
			if !masked {
				other = got + " masq"
			}
			if slices.Contains(want, other) && !slices.Contains(want, got) && from == "node" {
				// Of 64,512 random ports, the kernel may choose the client's own; or it has chosen it before, for another
				// connection, and this one is given another in its place.
				got = w.send(from, pr)
			}
			if strings.HasPrefix(got, "no socket: protocol not supported") {
				unsent++ // a kernel without SCTP
				break
			}
			packets++
			if !slices.Contains(want, got) {
				t.Errorf("%s/%s %s %s:%d/%s from %s %s: the kernel %q, the walk %q", p.Service.Namespace, p.Service.Name,
					p.Frontend.Kind, p.Frontend.Address,
					p.Frontend.Port, p.Frontend.Protocol, p.Origin.Kind, p.Origin.Address, got, want)
				break
			}
		}
		compared++
	}
	t.Logf("%s: %d paths compared with the kernel, %d packets; %d paths of a protocol that this kernel does not have",
		name, compared-unsent, packets, unsent)
	if compared < 4 {
		t.Error("next to nothing was compared")
	}
}
