// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"net"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// server accepts connections, and returns its address.
func server(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// The API server is reached at the addresses that were given, at those of its endpoints, and at the one that was asked
// for, in this order; one that does not answer is passed over, and of the endpoints the one that did comes first.
func TestDialer(t *testing.T) {
	asked, first, second, given := server(t), server(t), server(t), server(t)
	address := func(l net.Listener) string { return l.Addr().String() }
	d := NewDialer(nil)
	reached := func() string {
		c, err := d.Dial(t.Context(), "tcp", address(asked))
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		return c.RemoteAddr().String()
	}
	if got := reached(); got != address(asked) {
		t.Errorf("knowing nothing: %s", got)
	}
	d.use([]string{address(first), address(second)})
	d.use(nil)
	if got := reached(); got != address(first) {
		t.Errorf("knowing the endpoints: %s", got)
	}
	_ = first.Close()
	if got := reached(); got != address(second) || d.addresses[0] != address(second) {
		t.Errorf("without the first endpoint: %s, then %v", got, d.addresses)
	}
	d.fixed = []string{address(given)}
	if got := reached(); got != address(given) {
		t.Errorf("by hand: %s", got)
	}
	_, _ = given.Close(), second.Close()
	if got := reached(); got != address(asked) {
		t.Errorf("when nothing else answers: %s", got)
	}
	_ = asked.Close()
	if c, err := d.Dial(t.Context(), "tcp", address(asked)); err == nil {
		_ = c.Close()
		t.Error("nothing answers")
	}
}

func TestAddressesOfTheAPI(t *testing.T) {
	slice := func(namespace, service string, ready bool, addresses ...string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service},
			},
			Ports:     []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(6443))}, {Name: new("all ports")}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		}
	}
	got := apiAddresses([]*discoveryv1.EndpointSlice{
		slice("default", "web", true, "10.0.0.9"), slice("shop", "kubernetes", true, "10.0.0.8"),
		slice("default", "kubernetes", true, "10.0.0.1", "fd00::1"), slice("default", "kubernetes", false, "10.0.0.2"),
	})
	if want := []string{"10.0.0.1:6443", "[fd00::1]:6443"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// While requests for one kind fail, the API counts as away.
func TestConnected(t *testing.T) {
	client := fake.NewClientset()
	o, err := newObjects(client, "node1")
	if err != nil {
		t.Fatal(err)
	}
	var failed []string
	o.failed = func(kind string, _ error) { failed = append(failed, kind) }
	woken := 0
	o.wake = func() { woken++ }
	o.asked(t.Context(), kindServices, nil)
	o.asked(t.Context(), kindNodes, errors.New("refused"))
	if o.connected() || !slices.Equal(failed, []string{kindNodes}) {
		t.Errorf("it is connected: %t; %v failed", o.connected(), failed)
	}
	o.asked(t.Context(), kindNodes, nil)
	if woken != 1 {
		t.Errorf("%d passes are begun where a kind answers again", woken)
	}
	if !o.connected() {
		t.Error("it is connected again")
	}
}
