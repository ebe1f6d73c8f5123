// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// A tenant's pods in the node's network, without any right, call themselves kube-proxy by everything that they can
// choose: the pod's name, labels and container, the executable, its command line, a socket where that says; and the
// programs that read rules stand in their file system. No command's report changes, none of these programs is run, and
// nothing is asked of them: not by the plugin, and not by the agents while they run (SVCPROXY_IMPOSTORS, how long).
func TestImpostors(t *testing.T) {
	program := filepath.Join(t.TempDir(), "impostor")
	gcc := exec.CommandContext(t.Context(), "gcc", "-static", "-Os", "-s", "-o", program, "testdata/impostor.c")
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	commands := [][]string{
		{
			"mode",
			"--all-nodes",
		}, {"verify", "--all-nodes"}, {"trace", app, "--all-nodes"}, {"trace", app, "--node", nodes[0], "--live"},
	}
	// What a report says, without times, numbers of samples and the note of the impostors.
	said := func(args []string) string {
		r := svcproxy(t, append(slices.Clone(args), "-o", "json")...)
		if slices.Contains(args, "--live") { // what connections showed is never the same
			return fmt.Sprintf("exit code %d, %s", r.code, r.report.Verdict)
		}
		x := r.report
		x.Source, x.Summary = nil, report.Summary{}
		for i := range x.Nodes {
			n := &x.Nodes[i]
			n.Findings = slices.DeleteFunc(n.Findings, func(f report.Finding) bool { return f.Code == "ProcessNotTaken" })
			if n.Mode != nil {
				n.Mode.LastSync, n.Mode.Families, n.Mode.PendingChanges = "", nil, nil
			}
			for k := range n.Paths {
				n.Paths[k].Observed = nil
			}
		}
		text, err := json.MarshalIndent(x, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("exit code %d\n%s", r.code, text)
	}
	before := map[string]string{}
	for _, c := range commands {
		before[strings.Join(c, " ")] = said(c)
	}

	maps := client.CoreV1().ConfigMaps(namespace)
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "impostor"}, BinaryData: map[string][]byte{"kube-proxy": binary},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods(namespace)
	t.Cleanup(func() {
		for _, n := range nodes {
			if err := ignoreNotFound(pods.Delete(context.Background(), "kube-proxy-"+n, metav1.DeleteOptions{})); err != nil {
				t.Error(err)
			}
		}
		if err := maps.Delete(context.Background(), "impostor", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	for _, n := range nodes {
		if _, err := pods.Create(t.Context(), impostor(n), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	happened := func(n string) string {
		log, err := pods.GetLogs("kube-proxy-"+n, &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(log)
	}
	for _, n := range nodes {
		wait(t, "the impostor runs on "+n, func() (bool, error) {
			p, err := pods.Get(t.Context(), "kube-proxy-"+n, metav1.GetOptions{})
			if err != nil || !running(p) {
				return false, errors.Join(err, errors.New("not yet"))
			}
			return strings.HasPrefix(happened(n), "ready"), nil
		})
	}

	for _, c := range commands {
		if got, want := said(c), before[strings.Join(c, " ")]; got != want {
			t.Errorf(
				"%s: with impostors (+) and without (-)\n%s",
				c,
				cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")),
			)
		}
	}
	r := svcproxy(t, "mode", "--node", nodes[0])
	if !strings.Contains(
		r.out,
		"a process goes by the name kube-proxy and is not taken for it, as it runs as user 65532 without CAP_NET_ADMIN",
	) {
		t.Errorf("the impostor is not named: %s", r)
	}
	archive := filepath.Join(t.TempDir(), "dump.tar.gz")
	if r := svcproxy(t, "dump", "--node", nodes[0], "-o", archive); r.code != 0 {
		t.Error(r)
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-xzOf", archive).Output(); err != nil ||
		strings.Contains("\n"+string(out), "\nroot:") {
		t.Errorf("the dump has a file of passwords, or cannot be read: %v", err)
	}
	if long := os.Getenv("SVCPROXY_IMPOSTORS"); long != "" {
		d, err := time.ParseDuration(long)
		if err != nil {
			t.Fatal(err)
		}
		agents := deployWatch(t)
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
			for n, a := range agents {
				if m := scrapeFrom(t, a); len(m.findings()) > 0 {
					t.Fatalf("%s: %v", n, m.findings())
				}
			}
		}
	}
	for _, n := range nodes {
		if got := happened(n); got != "ready\n" {
			t.Errorf("%s: %q", n, got)
		}
	}
}

// impostor is a pod of the node's network without any right, as a tenant may be allowed to make it.
func impostor(node string) *corev1.Pod {
	const user = 65532
	readable := new(int32(0o555))
	var tools []corev1.KeyToPath
	for _, name := range []string{
		"iptables", "ip6tables", "iptables-save", "iptables-nft-save", "iptables-legacy-save", "nft", "ipset", "conntrack",
		"ip",
	} {
		tools = append(tools, corev1.KeyToPath{Key: "kube-proxy", Path: name})
	}
	from := func(items []corev1.KeyToPath) corev1.VolumeSource {
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "impostor"}, DefaultMode: readable, Items: items,
		}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "kube-proxy-" + node,
			Labels: map[string]string{"k8s-app": "kube-proxy", "component": "kube-proxy"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true,
			AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)), FSGroup: new(int64(user)), RunAsNonRoot: new(true),
			},
			Containers: []corev1.Container{{
				Name: "kube-proxy", Image: echoImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{
					"/opt/kube-proxy", "--config=../../../../../etc/shadow", "--proxy-mode=ipvs",
					"--metrics-bind-address=127.0.0.1:10359",
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{
					{
						Name:      "program",
						MountPath: "/opt",
					}, {Name: "tools", MountPath: "/usr/sbin"}, {Name: "mark", MountPath: "/mark"},
				},
			}},
			Volumes: []corev1.Volume{
				{Name: "program", VolumeSource: from(nil)},
				{Name: "tools", VolumeSource: from(tools)},
				{Name: "mark", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
}

// What people with few rights get is what docs/security.md says.
func TestFewRights(t *testing.T) {
	const group = "svcproxy-e2e:few"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "svcproxy-e2e-few"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "nodes"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list"}},
	}}
	helpers := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "svcproxy-e2e-few"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "list", "watch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods/attach"}, Verbs: []string{"create", "get"}},
	}}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}}
	api := client.RbacV1()
	_, err := api.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	_, err2 := api.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}, metav1.CreateOptions{})
	_, err3 := api.Roles(namespace).Create(t.Context(), helpers, metav1.CreateOptions{})
	_, err4 := api.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: helpers.ObjectMeta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: helpers.Name},
	}, metav1.CreateOptions{})
	t.Cleanup(func() { // the namespace takes the other two with it
		if err := errors.Join(api.ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{}),
			api.ClusterRoleBindings().Delete(context.Background(), role.Name, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	as := []string{"--as", "someone", "--as-group", group}
	for _, tt := range []struct {
		name    string
		args    []string
		code    int
		verdict report.Verdict
		by      report.Voucher
		says    string
	}{
		{"all rights", []string{"--helper-namespace", namespace}, 0, report.Match, report.VouchedByAPI, ""},
		{
			"without the right to list pods", append([]string{"--helper-namespace", namespace}, as...), 0,
			report.Match, report.VouchedByKubelet, "",
		},
		{"without the right to make pods", as, 3, report.Unknown, "", "cannot create pods in kube-system"},
		{
			"netadmin", append([]string{"--helper-namespace", namespace, "--security-profile", "netadmin"}, as...), 0,
			report.Match, report.VouchedByKubelet, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := svcproxy(t, append([]string{"trace", app, "--node", nodes[0], "-o", "json"}, tt.args...)...)
			if r.code != tt.code || r.report.Verdict != tt.verdict || len(r.report.Nodes) != 1 ||
				!strings.Contains(r.report.Nodes[0].Error, tt.says) || (tt.says == "") != (r.report.Nodes[0].Error == "") {
				t.Fatalf("%s: want %s and exit code %d\n%s", r.report.Verdict, tt.verdict, tt.code, r)
			}
			if m := r.report.Nodes[0].Mode; tt.by != "" && m.VouchedBy != tt.by {
				t.Errorf("vouched for by %q, want %q", m.VouchedBy, tt.by)
			}
		})
	}
}
