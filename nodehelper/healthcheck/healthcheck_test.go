// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What kube-proxy answers is read, what others answer is known not to be kube-proxy's, and no answer has a reason
// without the address.
func TestAsk(t *testing.T) {
	no := false
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	for _, c := range []struct {
		name string
		code int
		body string
		want snapshot.HealthAnswer
	}{
		{
			"endpoints", 200, `{"service":{"namespace":"shop","name":"web"},"localEndpoints":2}`,
			snapshot.HealthAnswer{Code: 200, KubeProxy: true, Service: "shop/web", Local: 2},
		},
		{
			"no endpoint, and not healthy", 503,
			`{"service":{"namespace":"shop","name":"web"},"localEndpoints":0,"serviceProxyHealthy":false}`,
			snapshot.HealthAnswer{Code: 503, KubeProxy: true, Service: "shop/web", Healthy: &no},
		},
		{"another program", 200, "<html>", snapshot.HealthAnswer{Code: 200}},
		{"an answer without an end", 200, `{"service":` + strings.Repeat(" ", 2*maxAnswer), snapshot.HealthAnswer{Code: 200}},
		{"a redirection", 302, "", snapshot.HealthAnswer{Code: 302}},
		{"nothing listens", 0, "", snapshot.HealthAnswer{Error: "connect: connection refused"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := closed
			if c.code != 0 {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Location", "http://"+closed.String())
					w.WriteHeader(c.code)
					_, _ = io.WriteString(w, c.body)
				}))
				defer s.Close()
				at = netip.MustParseAddrPort(s.Listener.Addr().String())
			}
			c.want.At = at
			got, err := Ask(t.Context(), []netip.AddrPort{at})
			if err != nil || len(got.List) != 1 || !reflect.DeepEqual(got.List[0], c.want) {
				t.Errorf("%v %+v, want %+v", err, got, c.want)
			}
		})
	}
}

// What is too much, or no address, is refused; a run that ends says so.
func TestAskIsBounded(t *testing.T) {
	if _, err := Ask(t.Context(), make([]netip.AddrPort, MaxPorts+1)); err == nil {
		t.Error("too many ports are asked")
	}
	got, err := Ask(t.Context(), make([]netip.AddrPort, 1))
	if err != nil || got.List[0].Error == "" {
		t.Errorf("%v %+v", err, got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ask(ctx, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}); err == nil {
		t.Error("it does not end")
	}
}
