// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	ktesting "k8s.io/client-go/testing"
)

func TestOpenRefused(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := func(format string, args ...any) error {
		return apierrors.NewForbidden(pods, "svcproxy-x", fmt.Errorf(format, args...))
	}
	namespace := func(name, level string) runtime.Object {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		if level != "" {
			n.Labels[enforceKey] = level
		}
		return n
	}
	security := forbidden(`violates PodSecurity "baseline:v1.30": host namespaces (hostNetwork=true, hostPID=true), ` +
		`privileged (container "nodehelper" must not set securityContext.privileged=true)`)
	invalid := func(text string) error {
		err := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "svcproxy-x", nil)
		err.ErrStatus.Message = `pods "svcproxy-x" is forbidden: ` + text
		return err
	}
	// As an API server of 1.37 says it.
	const denied = `ValidatingAdmissionPolicy 'svcproxy-helper' with binding 'svcproxy-helper' denied request: `
	const policy = "the ValidatingAdmissionPolicy svcproxy-helper refuses the helper pod in namespace tools: "
	const refusedBy = `namespace tools enforces Pod Security "baseline:v1.30", which refuses the helper pod ` +
		`(host namespaces, privileged): `
	for name, c := range map[string]struct {
		err     error
		objects []runtime.Object
		want    string
	}{
		"no permission": {
			err: forbidden(
				`User "system:serviceaccount:ci:bot" cannot create resource "pods" in API group "" in the namespace "tools"`,
			),
			want: "cannot create pods in tools as user system:serviceaccount:ci:bot: deploy/rbac.yaml grants it",
		},
		"Pod Security, and a namespace says that it takes it": {
			err: security,
			objects: []runtime.Object{
				namespace("tools", "baseline"), namespace("kube-system", ""), namespace("ops", "privileged"), namespace("a", ""),
			},
			want: refusedBy + "--helper-namespace ops would accept it",
		},
		"Pod Security, and kube-system enforces nothing": {
			err:     security,
			objects: []runtime.Object{namespace("tools", "baseline"), namespace("a", ""), namespace("kube-system", "")},
			want:    refusedBy + "--helper-namespace kube-system would accept it",
		},
		"Pod Security everywhere": {
			err: security, objects: []runtime.Object{namespace("tools", "baseline"), namespace("kube-system", "restricted")},
			want: refusedBy + "no namespace accepts it; create one with: " +
				"kubectl label namespace NAME pod-security.kubernetes.io/enforce=privileged",
		},
		"quota is used up": {
			err: forbidden("exceeded quota: small, requested: pods=1, used: pods=5, limited: pods=5"),
			want: "the ResourceQuota small of namespace tools leaves no room for a helper pod (requested: pods=1, used: " +
				"pods=5, limited: pods=5): choose another with --helper-namespace",
		},
		"quota wants more": {
			err: forbidden("failed quota: disk: must specify limits.ephemeral-storage for: nodehelper"),
			want: "the ResourceQuota disk of namespace tools refuses the helper pod (must specify limits.ephemeral-storage " +
				"for: nodehelper): choose another with --helper-namespace",
		},
		"limit range": {
			err: forbidden("[maximum cpu usage per Container is 1, but limit is 2]"),
			want: "a LimitRange of namespace tools refuses the helper pod (maximum cpu usage per Container is 1, but limit " +
				"is 2): choose another with --helper-namespace",
		},
		"no such namespace": {
			err:  apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "tools"),
			want: "there is no namespace tools for the helper pod: choose another with --helper-namespace",
		},
		"the image is not one of the policy's": {
			err: forbidden("%s", denied+"the image registry.example/x:v1 is not allowed; allow it with: kubectl …"),
			want: policy + "the image ghcr.io/svcproxy/nodehelper:v1.2.3 is not allowed; allow it with: kubectl -n tools " +
				"patch configmap svcproxy-helper --type merge -p " +
				`'{"data":{"image.ghcr.io-svcproxy-nodehelper-v1.2.3":"ghcr.io/svcproxy/nodehelper:v1.2.3"}}'`,
		},
		"the policy's parameter is gone": {
			err: invalid(denied + "failed to configure binding: no params found for policy binding with `Deny` " +
				"parameterNotFoundAction"),
			want: policy + "there is no ConfigMap svcproxy-helper with the images that are allowed; create it with: " +
				"kubectl -n tools create configmap svcproxy-helper " +
				"--from-literal='image.ghcr.io-svcproxy-nodehelper-v1.2.3=ghcr.io/svcproxy/nodehelper:v1.2.3'",
		},
		"the policy was applied a moment ago": {
			err: invalid(denied + "failed to configure binding: paramKind kind `/v1, Kind=ConfigMap` not yet synced to use " +
				"for admission"),
			want: policy + "the API server has only just started to read it (failed to configure binding: paramKind kind `/v1, " +
				"Kind=ConfigMap` not yet synced to use for admission): try again in a moment",
		},
		"the policy is of another version": {
			err: forbidden("%s", denied+"a helper pod has hostNetwork: true and hostPID: true"),
			want: policy + "a helper pod has hostNetwork: true and hostPID: true; apply the deploy/ of this plugin's " +
				"version, or choose another with --helper-namespace",
		},
		"another policy": {
			err: invalid(`ValidatingAdmissionPolicy 'no-root' with binding 'all' denied request: exceeded quota: of, roots`),
			want: "the ValidatingAdmissionPolicy no-root refuses the helper pod in namespace tools (exceeded quota: of, " +
				"roots): choose another with --helper-namespace",
		},
		"a webhook": {
			err: forbidden("admission webhook denied it"),
			want: `the API server did not accept the helper pod in namespace tools: pods "svcproxy-x" is forbidden: ` +
				"admission webhook denied it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, nil, c.objects...)
			w.react("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			_, err := w.l.Open(t.Context(), "node1")
			expect(t, err, c.want)
			expect(t, w.l.Check(t.Context(), "node1"), c.want)
		})
	}
}

// The problem of a node is reported before a pod is created for it.
func TestOpenNode(t *testing.T) {
	for name, c := range map[string]struct {
		node   string
		change func(*corev1.Node)
		err    error // of reading it
		want   string
	}{
		"not ready": {
			node: "node2",
			change: func(n *corev1.Node) {
				n.Status.Conditions[0] = corev1.NodeCondition{
					Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
					Message: "Kubelet stopped posting node status.", LastTransitionTime: metav1.Unix(1700000000, 0),
				}
			},
			want: "node node2: not ready, so no helper can start there: " +
				"NodeStatusUnknown: Kubelet stopped posting node status.",
		},
		"windows": {
			node: "node2", change: func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelOSStable: "windows"} },
			want: "node node2: the operating system is windows, and the helper needs Linux",
		},
		"none": {node: "nope", want: `there is no node "nope": kubectl get nodes lists those of the cluster`},
		"no name": {
			node: "Node 2",
			want: `"Node 2" is not a valid name of a node: a lowercase RFC 1123 subdomain must consist of lower case ` +
				`alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character ` +
				`(e.g. 'example.com', regex used for validation is ` +
				`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		},
		"may not look": {
			node: "node1", err: apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node1", errors.New("no")),
		},
		"cannot look": {
			node: "node1", err: errors.New("connection refused"), want: "cannot read node node1: connection refused",
		},
		"good":         {node: "node2"},
		"says nothing": {node: "node2", change: func(n *corev1.Node) { n.Status.Conditions = nil }},
		"runs linux": {
			node: "node2", change: func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelOSStable: "linux"} },
		},
		"under pressure": {node: "node2", change: func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue,
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := readyNode("node2")
			if c.change != nil {
				c.change(n)
			}
			w := newFakeCluster(t, nil, n)
			if c.err != nil {
				w.react("get", "nodes", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			}
			_, err := w.l.Open(t.Context(), c.node)
			expect(t, err, c.want)
			if created := len(w.did("create", "pods")); (created > 0) != (c.want == "") {
				t.Errorf("%d pods were made", created)
			}
		})
	}
}

// An image of any name makes a command that is one word for a shell, and a key that a ConfigMap takes.
func TestPolicyNamesAnyImage(t *testing.T) {
	long := "registry.example/" + strings.Repeat("x", 300)
	for image, key := range map[string]string{
		"a/b:v1@sha256:0123": "image.a-b-v1-sha256-0123",
		"it's $(x) \"y\"":    "image.it-s-x-y",
		long:                 ("image.registry.example-" + strings.Repeat("x", 300))[:253],
	} {
		if got := keyOf(image); got != key || len(validation.IsConfigMapKey(got)) > 0 {
			t.Errorf("the key of %s is %s, want %s: %v", image, got, key, validation.IsConfigMapKey(got))
		}
	}
	out, err := exec.Command("sh", "-c", "printf %s "+shellWord(`it's $(x) "y"`)).Output()
	if err != nil || string(out) != `it's $(x) "y"` {
		t.Errorf("a shell reads %s, %v", out, err)
	}
}
