// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/test/tenant"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// tenantCase returns what one case of a tenant writes.
func tenantCase(t *testing.T, name string) tenant.Objects {
	t.Helper()
	i := slices.IndexFunc(tenant.Cases, func(c tenant.Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no case %q", name)
	}
	return tenant.Cases[i].Make()
}

// The bound is by what objects take in the heap, about.
func TestWhatObjectsTakeInMemory(t *testing.T) {
	inUse := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for _, name := range []string{
		"100 ports, 20 slices of 1,000 endpoints", "1,000 Services with 200 external IPs",
		"names and annotations of all lengths", "100 slices of 1,000 endpoints in zones", "2,000 Services on 1,000 nodes",
	} {
		before, h := inUse(), newHolding(1<<40)
		kept := func() (out []any) { // nothing else of the objects stays
			o := tenantCase(t, name)
			for _, s := range o.Services {
				out = append(out, h.take(lean(s.DeepCopy())))
			}
			for _, s := range o.Slices {
				out = append(out, h.take(lean(s.DeepCopy())))
			}
			return out
		}()
		took := inUse() - before
		t.Logf("%s: counted as %d KB, and are %d KB", name, h.total>>10, took>>10)
		if h.total < took*2/3 || h.total > took*3 {
			t.Errorf("%s: counted as %d KB, and are %d KB", name, h.total>>10, took>>10)
		}
		runtime.KeepAlive(kept)
	}
}

// What is said of the paths of other Services, and of the node.
func saidOf(r *report.NodeReport) (others []string, ofTenant map[string]report.Verdict) {
	ofTenant = map[string]report.Verdict{}
	for i := range r.Paths {
		p := &r.Paths[i]
		if p.Service.Namespace == tenant.Namespace {
			if ofTenant[p.Service.Name] != report.Unknown {
				ofTenant[p.Service.Name] = p.Verdict
			}
			continue
		}
		others = append(others, fmt.Sprint(p.Service, p.Frontend, p.Origin, p.Verdict, len(p.Findings)))
	}
	for i := range r.Findings {
		others = append(others, r.Findings[i].Code+" "+r.Findings[i].Subject)
	}
	return others, ofTenant
}

// The endpoints of a tenant that has more than there is room for are not held: his Services are not judged, all others
// are as without them, and none of his is a match or wrong for what is not there. Once there is room, all is judged.
func TestATenantsEndpointsThatAreNotHeld(t *testing.T) {
	said := func(c *captured, a *Agent) ([]string, map[string]report.Verdict) {
		look(t, a, 0)
		state, err := nodestate.LoadToCompare(c.node)
		if err != nil {
			t.Fatal(err)
		}
		r := a.judge(t.Context(), state)
		return saidOf(&r)
	}
	alone := capture(t, "real-2node-iptables", "node1")
	want, _ := said(alone, alone.agent(t))
	o := tenantCase(t, "250 Services at one external IP")
	o.Services, o.Slices = o.Services[:40], o.Slices[:40]
	for i, s := range o.Slices {
		o.Services[i].Spec.ExternalIPs, s.Endpoints = nil, nil
		for k := range 200 {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.128.%d.%d", i, k)}})
		}
	}
	c := capture(t, "real-2node-iptables", "node1", o)
	whole := c.agent(t)
	total, fixed := whole.objects.holding.total, 0
	for _, x := range whole.objects.holding.objects {
		fixed += x.memory
	}
	most := fixed + (total-fixed)/2
	a := c.agentThatHolds(t, most)
	if got := a.objects.holding.locked(func(h *holding) int { return h.total }); got > most || got < most*3/4 {
		t.Errorf("%d bytes are held of %d", got, most)
	}
	others, ofTenant := said(c, a)
	if !slices.Equal(others, want) {
		t.Errorf("of others it says\n%s\nwithout the tenant\n%s", strings.Join(others, "\n"), strings.Join(want, "\n"))
	}
	left := len(a.index.Left)
	count := map[report.Verdict]int{}
	for _, v := range ofTenant {
		count[v]++
	}
	if left < 15 || left > 30 || count[report.Unknown] != left {
		t.Errorf("%d are not held; verdicts: %v", left, count)
	}
	v := exposed(t, a.Handler())
	if want := fmt.Sprint(left); v[notHeldMetric] != want || v[notJudgedMetric] != want {
		t.Errorf("metrics say %q not held, %q not judged; want %s", v[notHeldMetric], v[notJudgedMetric], want)
	}
	state, err := nodestate.LoadToCompare(c.node)
	if err != nil {
		t.Fatal(err)
	}
	r := a.judge(t.Context(), state)
	published := 0
	for _, f := range publishedOf(&r, &a.settler) {
		if f.Code == judge.NotJudged && f.Severity == report.Info {
			published++
		}
	}
	if published != left {
		t.Errorf("%d are published as not judged, of %d", published, left)
	}

	objects := a.objects.holding.count()
	a.objects.readAgain() // too early
	if n := a.objects.holding.locked(func(h *holding) int { return len(h.left) }); n != left {
		t.Errorf("%d of %d are left without more room", n, left)
	}
	for _, s := range o.Slices[:len(o.Slices)*4/5] {
		err := c.client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() bool { return a.objects.holding.count() == objects-len(o.Slices)*4/5 })
	a.objects.readAgain()
	until(t, func() bool {
		_, left := a.objects.endpointSlices()
		return len(left) == 0
	})
	if got := a.objects.holding.locked(func(h *holding) int { return h.total }); got > most {
		t.Errorf("%d bytes are held of %d", got, most)
	}
	if others, ofTenant = said(c, a); !slices.Equal(others, want) {
		t.Errorf("of others it says\n%s\nwithout the tenant\n%s", strings.Join(others, "\n"), strings.Join(want, "\n"))
	}
	for name, v := range ofTenant {
		if v == report.Unknown {
			t.Errorf("%s is not judged", name)
		}
	}
	if v := exposed(t, a.Handler()); v[notHeldMetric] != "0" {
		t.Errorf("metrics say %q not held", v[notHeldMetric])
	}
}

// count is of how many objects it knows.
func (h *holding) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.objects)
}

// held is how much of memory its objects take.
func (h *holding) held() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total
}

// until waits for a condition.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}

// Where even the Services are more than there is room for, the node is not judged, which is said, and what is held is
// bounded whatever comes. The agent ends when it is time to look again.
func TestMoreObjectsThanThereIsRoomFor(t *testing.T) {
	o := tenantCase(t, "2,000 Services at one external IP")
	c := capture(t, "real-2node-iptables", "node1", o)
	const most = 1 << 20
	a := c.agentThatHolds(t, most)
	if got := a.objects.holding.held(); got > most+16<<10 {
		t.Errorf("%d bytes are held of %d", got, most)
	}
	if n := len(listed[*corev1.Service](a.objects.informers[kindServices])); n > most/objectMemory {
		t.Errorf("%d Services are held", n)
	}
	var lines []string
	a.Log = func(line string) { lines = append(lines, line) }
	a.pass(t.Context(), reasonAPI)
	if want := "the node was not judged: " + errNothingHeld.Error(); len(lines) != 1 || !strings.Contains(lines[0], want) {
		t.Errorf("%q, want %q", lines, want)
	}
	if v := exposed(t, a.Handler()); v[failuresMetric] != "1" {
		t.Errorf("%s is %q", failuresMetric, v[failuresMetric])
	}
	b, err := New(Options{Node: c.node.Name, Client: c.client, Full: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	b.objects.holding.over = time.Now().Add(-2 * b.Full)
	if err := b.Run(t.Context()); !errors.Is(err, errNothingHeld) {
		t.Errorf("it ends with %v", err)
	}
}

// An object that is deleted while its successor is counted already takes nothing from it.
func TestAnObjectThatIsMadeAnew(t *testing.T) {
	h := newHolding(1 << 20)
	of := func(uid types.UID, endpoints int) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: uid},
			Endpoints:  slices.Repeat([]discoveryv1.Endpoint{{Addresses: []string{"10.244.1.5"}}}, endpoints),
		}
	}
	h.take(of("1", 100))
	h.take(of("2", 5))
	want := h.total
	h.gone(kindEndpointSlices, of("1", 100))
	if h.total != want {
		t.Errorf("%d bytes, want %d", h.total, want)
	}
	h.gone(kindEndpointSlices, of("2", 5))
	if h.total != 0 || len(h.objects) != 0 {
		t.Errorf("%d bytes of %d objects are left", h.total, len(h.objects))
	}
}

// A tenant with more than a million endpoints does not end the passes of an agent by their memory: of others the same
// is said as without him, byte for byte, and each of his Services is judged or named as not judged. The memory that is
// looked at is the agent's, as limited does.
func TestATenantsEndpointsDoNotEndThePass(t *testing.T) {
	testutil.Long(t)
	said := func(c *captured, a *Agent) (others string, ofTenant map[string]report.Verdict) {
		state, err := nodestate.LoadToCompare(c.node)
		if err != nil {
			t.Fatal(err)
		}
		r := a.judge(t.Context(), state)
		_, ofTenant = saidOf(&r)
		var paths []report.Path
		for i := range r.Paths {
			if r.Paths[i].Service.Namespace != tenant.Namespace {
				paths = append(paths, r.Paths[i])
			}
		}
		if len(paths) == 0 {
			t.Fatal("no path of others is wrong")
		}
		text, err := json.Marshal([]any{paths, r.Findings, r.Error})
		if err != nil {
			t.Fatal(err)
		}
		return string(text), ofTenant
	}
	captured := func() *captured {
		c := capture(t, "real-2node-iptables", "node1")
		c.node = withoutLine(t, c.node, snapshot.IPTablesNFTFile, " -j KUBE-SEP-")
		return c
	}
	alone := captured()
	want, _ := said(alone, alone.agent(t))
	for name, change := range map[string]func(*discoveryv1.Endpoint){
		"on 1,000 nodes": func(*discoveryv1.Endpoint) {},
		"on no node":     func(e *discoveryv1.Endpoint) { e.NodeName = nil },
		"of pods": func(e *discoveryv1.Endpoint) {
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "web-7d4b9c9c6d-" + e.Addresses[0]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := captured()
			a := c.agent(t)
			runtime.GC()
			before := heapInUse()
			a.inUse = func() uint64 { return max(heapInUse(), before) - before }
			services := 0
			put := func(kind string, object any) {
				if err := a.objects.informers[kind].GetStore().Add(a.objects.holding.take(lean(object))); err != nil {
					t.Fatal(err)
				}
			}
			tenant.Crowd(func(o tenant.Objects) {
				for _, s := range o.Services {
					services++
					put(kindServices, s)
				}
				for _, s := range o.Slices {
					for i := range s.Endpoints {
						change(&s.Endpoints[i])
					}
					put(kindEndpointSlices, s)
				}
			})
			var lines []string
			a.Log = func(line string) { lines = append(lines, line) }
			for range 2 {
				a.objects.holding.changed() // the objects are indexed anew
				a.pass(t.Context(), reasonAPI)
			}
			for _, line := range lines {
				if strings.Contains(line, errPassMemory.Error()) {
					t.Error(line)
				}
			}
			others, ofTenant := said(c, a)
			if others != want {
				t.Errorf("of others it says\n%s\nwithout the tenant\n%s", others, want)
			}
			judged := 0
			for _, v := range ofTenant {
				if v != report.Unknown {
					judged++
				}
			}
			if len(ofTenant) != services || judged < 5 || judged > services/2 {
				t.Errorf("%d of %d Services are judged, %d are named", judged, services, len(ofTenant))
			}
		})
	}
}

// locked returns a number of what is held.
func (h *holding) locked(number func(h *holding) int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return number(h)
}
