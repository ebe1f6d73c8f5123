// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
)

// The names are those of kubelet with both of its drivers (pkg/kubelet/cm/cgroup_manager_linux.go).
func TestGroupsOfAPod(t *testing.T) {
	const uid, other = "0c7e2d5e-5d1b-4f0e-9a3c-2b8f8f9c1a11", "1c7e2d5e_5d1b_4f0e_9a3c_2b8f8f9c1a11"
	const slice = "0c7e2d5e_5d1b_4f0e_9a3c_2b8f8f9c1a11"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid, Annotations: map[string]string{
			configHash: "4d2b6d2f1f5a4e0c8a7b6c5d4e3f2a1b",
		}},
		Status: corev1.PodStatus{QOSClass: corev1.PodQOSBurstable},
	}
	for group, want := range map[string]bool{
		"/":                                         true,
		"/kubepods":                                 true,
		"/kubepods.slice":                           true,
		"/kubepods/burstable":                       true,
		"/kubepods/besteffort":                      false,
		"/kubepods/burstable/pod" + uid:             true,
		"/kubepods/pod" + uid + "/abc":              true,
		"/kubepods/burstable/pod" + other:           false,
		"/kubepods.slice/kubepods-burstable.slice":  true,
		"/kubepods.slice/kubepods-besteffort.slice": false,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slice + ".slice":             true,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slice + ".slice/cri-1.scope": true,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + other + ".slice":             false,
		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + other + ".slice":                  false,
		"/kubepods/burstable/pod4d2b6d2f1f5a4e0c8a7b6c5d4e3f2a1b":                                        true,
		"/system.slice/systemd-logind.service":                                                           false,
		"/user.slice":                                                                                    false,
	} {
		if got := groupOf(&nodestate.GroupProgram{Group: group}, pod); got != want {
			t.Errorf("%s: %t", group, got)
		}
	}
	if groupOf(&nodestate.GroupProgram{Group: "/kubepods/burstable/pod" + uid}, nil) ||
		!groupOf(&nodestate.GroupProgram{Group: "/kubepods.slice"}, nil) {
		t.Error("of a pod that is not known only the groups of all pods count")
	}
}
