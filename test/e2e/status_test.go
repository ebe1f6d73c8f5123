// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// statusOf runs the command status.
func statusOf(t *testing.T, args ...string) (*report.StatusReport, result) {
	t.Helper()
	r := svcproxy(t, append([]string{"status", "-o=json"}, args...)...)
	out := &report.StatusReport{}
	if r.out != "" {
		if err := json.Unmarshal([]byte(r.out), out); err != nil {
			t.Fatalf("%v\n%s", err, r)
		}
	}
	return out, r
}

// statusTells: the command status knows all nodes by what their agents publish, tells of a fault on the node that has
// it, and of its repair.
func statusTells(t *testing.T) {
	t.Helper()
	healthy := func(what string) {
		t.Helper()
		wait(t, what, func() (bool, error) {
			s, r := statusOf(t)
			return r.code == 0 && s.Summary.Right == s.Summary.Nodes && s.Summary.Nodes >= len(nodes), errors.New(r.String())
		})
	}
	healthy("all nodes are right")
	var groups []report.StatusGroup
	for _, args := range [][]string{nil, {app}} {
		wait(t, "status tells of the deleted rule", func() (bool, error) {
			breakService(t, nodes[0])
			s, r := statusOf(t, args...)
			groups = s.Groups
			return r.code == 1 && len(s.Groups) > 0, errors.New(r.String())
		})
		for i := range groups {
			g := &groups[i]
			if !slices.Equal(g.Nodes, nodes[:1]) || g.Service == nil || g.Service.Name != app || g.Since == "" {
				t.Errorf("%+v", g)
			}
		}
	}
	restartKubeProxy(t, nodes[0])
	healthy("status tells of the repair")
}

// ownReportAlone: with the token of an agent's pod the report of its own node can be written and no other one, and
// nothing can be run in a pod.
func ownReportAlone(t *testing.T, agent *corev1.Pod) {
	t.Helper()
	pod := &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: agent.Name, UID: agent.UID}
	token, err := client.CoreV1().ServiceAccounts(deployed).CreateToken(t.Context(), agent.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: pod}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := rest.AnonymousClientConfig(config)
	c.BearerToken = token.Status.Token
	as, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	path := func(node string) string { return nodereport.Path + "/" + node }
	write := func(node string) error {
		var data []byte
		wait(t, "there is a report of "+node, func() (bool, error) {
			data, err = client.Discovery().RESTClient().Get().AbsPath(path(node)).Do(t.Context()).Raw()
			return err == nil, err
		})
		o := map[string]any{}
		if err := json.Unmarshal(data, &o); err != nil {
			t.Fatal(err)
		}
		o["status"].(map[string]any)["findingsTotal"] = 99
		if data, err = json.Marshal(o); err != nil {
			t.Fatal(err)
		}
		return as.Discovery().RESTClient().Put().AbsPath(path(node)).SetHeader("Content-Type", "application/json").
			Param("dryRun", "All").Body(data).Do(t.Context()).Error()
	}
	for _, node := range nodes {
		if node != agent.Spec.NodeName {
			if err := write(node); !apierrors.IsForbidden(err) {
				t.Errorf("the agent of %s writes the report of %s: %v", agent.Spec.NodeName, node, err)
			}
			continue
		}
		wait(t, "it writes its own", func() (bool, error) {
			err := write(node) // the agent itself may have written in between
			return err == nil, err
		})
	}
	for _, verb := range []string{"create", "get"} {
		review, err := as.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: deployed, Verb: verb, Resource: "pods", Subresource: "exec",
				},
			}}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed {
			t.Errorf("%s pods/exec: %v %v", verb, fmt.Sprintf("%+v", review), err)
		}
	}
}
