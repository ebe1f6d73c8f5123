// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/svcproxy/kubectl-svcproxy/internal/apiraw"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func TestPages(t *testing.T) {
	full := page[int]{items: make([]int, bounds.APIPage), more: "next", version: "41"}
	expired := apierrors.NewResourceExpired("too old")
	for _, tt := range []struct {
		name    string
		request func(n int, o metav1.ListOptions) (page[int], error)
		want    int
		err     string
	}{
		{
			"one page",
			func(int, metav1.ListOptions) (page[int], error) {
				return page[int]{items: []int{1, 2}, version: "41"}, nil
			},
			2,
			"",
		},
		{"two pages", func(n int, o metav1.ListOptions) (page[int], error) {
			if n == 0 {
				return full, nil
			}
			if o.Continue != "next" || o.Limit != bounds.APIPage {
				return page[int]{}, fmt.Errorf("asked for %+v", o)
			}
			return page[int]{items: []int{1}, version: "41"}, nil
		}, bounds.APIPage + 1, ""},
		{"pages that expire", func(n int, o metav1.ListOptions) (page[int], error) {
			switch {
			case n == 0:
				return full, nil
			case o.Continue != "":
				return page[int]{}, expired
			}
			return page[int]{items: make([]int, 7), version: "43"}, nil
		}, 7, ""},
		{
			"pages without end",
			func(int, metav1.ListOptions) (page[int], error) { return full, nil },
			0,
			"the API server lists more than 200000 things, or in more than 1000 pages: fewer were expected",
		},
		{
			"empty pages without end",
			func(int, metav1.ListOptions) (page[int], error) { return page[int]{more: "x"}, nil },
			0,
			"the API server lists more than 200000 things, or in more than 1000 pages: fewer were expected",
		},
		{
			"an error",
			func(int, metav1.ListOptions) (page[int], error) { return page[int]{}, errors.New("no") },
			0,
			"no",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			got, version, err := list(t.Context(), "things", metav1.ListOptions{},
				func(_ context.Context, o metav1.ListOptions) (page[int], error) {
					n++
					return tt.request(n-1, o)
				})
			wantVersion := map[string]string{"one page": "41", "two pages": "41", "pages that expire": "43"}[tt.name]
			if version != wantVersion {
				t.Errorf("version %q, want %q", version, wantVersion)
			}
			if len(got) != tt.want || fmt.Sprint(err) != tt.err && (err != nil || tt.err != "") {
				t.Errorf("%d, %v; want %d, %q", len(got), err, tt.want, tt.err)
			}
		})
	}
}

// An answer of the API server that does not end is an error, as soon as it is too large.
func TestEndlessAnswerOfTheAPIServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		part := strings.Repeat(`{"metadata":{"name":"a"}},`, 40_000)
		_, err := io.WriteString(w, `{"kind":"List","apiVersion":"v1","items":[`)
		for err == nil {
			_, err = io.WriteString(w, part)
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	config.Wrap(apiraw.Bound(bounds.APIResponses))
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = FromAPI(client, "").Objects(t.Context())
	want := " holds more than 200000 JSON objects: at most 200000 were expected"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	err = FromAPI(client, "").Pods(t.Context(), &snapshot.Cluster{}, Pods{All: true})
	if err == nil || !strings.Contains(err.Error(), "/api/v1/pods holds more than 200000 JSON objects") {
		t.Errorf("got %v", err)
	}
}
