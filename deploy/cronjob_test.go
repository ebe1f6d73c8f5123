// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/plugin/command"
)

// TestCronJob: the example has fields that Kubernetes knows, binds roles that deploy/ makes, where it makes them, and
// gives the plugin arguments that it takes.
func TestCronJob(t *testing.T) {
	objects, base := render(t, "cronjob"), render(t, ".")
	for name, o := range objects {
		var role string
		switch b := o.(type) {
		case *rbacv1.ClusterRoleBinding:
			role = "ClusterRole /" + b.RoleRef.Name
		case *rbacv1.RoleBinding:
			role = "Role " + b.Namespace + "/" + b.RoleRef.Name
		default:
			continue
		}
		if _, ok := base[role]; !ok {
			t.Errorf("%s binds %s, which deploy/ does not have", name, role)
		}
	}
	job := get[*batchv1.CronJob](t, objects, "CronJob svcproxy-verify/svcproxy-verify")
	pod := job.Spec.JobTemplate.Spec.Template.Spec
	if get[*rbacv1.RoleBinding](t, objects, "RoleBinding svcproxy/svcproxy-verify").Subjects[0].Name !=
		pod.ServiceAccountName {
		t.Errorf("the Job runs as %s, to which nothing is granted", pod.ServiceAccountName)
	}
	for _, e := range pod.Containers[0].Env {
		t.Setenv(e.Name, e.Value)
	}
	args := slices.Concat(pod.Containers[0].Command[1:], []string{"--snapshot", "../examples/broken-node"})
	args = slices.DeleteFunc(args, func(a string) bool { return a == "--all-nodes" }) // of a snapshot all are read
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	if code := command.Main(t.Context(), args, streams, command.System{}); code != 1 {
		t.Errorf("%v: exit code %d\n%s%s", args, code, out, errOut)
	}
}
