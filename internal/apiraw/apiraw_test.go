// SPDX-License-Identifier: Apache-2.0

package apiraw_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/svcproxy/kubectl-svcproxy/internal/apiraw"
)

// Who may not read a kind, or whose object the API server refuses, is told so in the server's own words.
func TestTheServersOwnMessage(t *testing.T) {
	const forbidden = `nodereports.svcproxy.dev is forbidden: User "nobody" cannot list resource "nodereports"`
	status := func(reason, message string, code string) string {
		return `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + reason + `","code":` + code +
			`,"message":"` + strings.ReplaceAll(message, `"`, `\"`) + `"}`
	}
	for name, c := range map[string]struct {
		code int
		body string
		want string
		is   func(error) bool
	}{
		"forbidden": {403, status("Forbidden", forbidden, "403"), forbidden, apierrors.IsForbidden},
		"invalid":   {422, status("Invalid", "status.verdict: Unsupported value", "422"), "Unsupported", apierrors.IsInvalid},
		"a failure of the server": {
			500, status("InternalError", "etcdserver: no leader", "500"), "etcdserver: no leader", apierrors.IsInternalError,
		},
		"no such kind": {404, "404 page not found\n", "could not find the requested resource", apierrors.IsNotFound},
		"a proxy's page": {
			503, "<html>busy</html>", "unable to handle the request", apierrors.IsServiceUnavailable,
		},
		"more than anybody reads": {
			403, status("Forbidden", strings.Repeat("x", 100_000), "403"), "xxx",
			func(err error) bool { return apierrors.IsForbidden(err) && len(err.Error()) < 10_000 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			data, err := apiraw.Body(client.RESTClient().Get().AbsPath("/apis/svcproxy.dev").MaxRetries(0).Do(t.Context()))
			if err == nil || !strings.Contains(err.Error(), c.want) || !c.is(err) || data != nil {
				t.Errorf("%q, %v", data, err)
			}
		})
	}
}
