// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

const (
	policyName  = "svcproxy-helper"
	connectName = "svcproxy-helper-connect"
)

// harmless are the fields of a pod that the policy leaves alone, and why.
var harmless = map[string]string{
	"PodSpec.nodeName":                   "where it runs",
	"PodSpec.nodeSelector":               "where it runs",
	"PodSpec.affinity":                   "where it runs",
	"PodSpec.tolerations":                "where it runs",
	"PodSpec.topologySpreadConstraints":  "where it runs",
	"PodSpec.schedulerName":              "where it runs",
	"PodSpec.schedulingGates":            "when it runs",
	"PodSpec.schedulingGroup":            "when it runs",
	"PodSpec.evictionResponders":         "who is asked before it is evicted",
	"PodSpec.serviceAccount":             "the API server makes it the same as serviceAccountName",
	"PodSpec.imagePullSecrets":           "secrets of the namespace, that the kubelet uses and the pod does not see",
	"PodSpec.priority":                   "admission refuses one that is not that of priorityClassName",
	"PodSpec.preemptionPolicy":           "admission refuses one that is not that of priorityClassName",
	"Container.imagePullPolicy":          "when the image is fetched, not which it is",
	"Container.terminationMessagePolicy": "what of the container's own output its status shows",
	"Container.resizePolicy":             "whether it is started again when its limits change",
}

// words are the fields that an expression names.
func words(p *admissionv1.ValidatingAdmissionPolicy) map[string]bool {
	found := map[string]bool{}
	for _, v := range p.Spec.Validations {
		for _, m := range regexp.MustCompile(`\.\??([a-zA-Z]+)`).FindAllStringSubmatch(v.Expression, -1) {
			found[m[1]] = true
		}
	}
	return found
}

// fields are the names of a type's fields in JSON.
func fields(of reflect.Type) []string {
	var names []string
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// The policy judges every field of a pod that this version of the API has, or leaves it alone with a reason: a field
// that is new in Kubernetes is a decision, and not a hole.
func TestPolicyJudgesEveryField(t *testing.T) {
	objects := render(t, ".")
	p := get[*admissionv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy /"+policyName)
	judged, used := words(p), map[string]bool{}
	for _, of := range []reflect.Type{
		reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[corev1.Container](), reflect.TypeFor[corev1.SecurityContext](),
		reflect.TypeFor[corev1.PodSecurityContext](), reflect.TypeFor[corev1.ResourceRequirements](),
	} {
		for _, name := range fields(of) {
			full := of.Name() + "." + name
			if _, ok := harmless[full]; ok {
				used[full] = true
			} else if !judged[name] {
				t.Errorf("nothing is said of %s", full)
			}
		}
	}
	for full := range harmless {
		if !used[full] {
			t.Errorf("there is no field %s any more", full)
		}
	}
}

// The policies fail closed, in the namespace of the helpers and in no other, and say what is wrong.
func TestPolicyFailsClosed(t *testing.T) {
	objects := render(t, ".")
	ns := get[*corev1.Namespace](t, objects, "Namespace /svcproxy")
	images := get[*corev1.ConfigMap](t, objects, "ConfigMap svcproxy/svcproxy-helper").Data
	if !slices.Equal(slices.Collect(maps.Values(images)), []string{launch.DefaultImage("devel")}) {
		t.Errorf("it allows %v", images)
	}
	for _, name := range []string{policyName, connectName} {
		p := get[*admissionv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy /"+name)
		if p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("%s lets through what it cannot judge", name)
		}
		for _, v := range p.Spec.Validations {
			if v.Message == "" && v.MessageExpression == "" {
				t.Errorf("%s does not say what is wrong where not %s", name, v.Expression)
			}
		}
		b := get[*admissionv1.ValidatingAdmissionPolicyBinding](t, objects, "ValidatingAdmissionPolicyBinding /"+name).Spec
		selects := b.MatchResources.NamespaceSelector.MatchLabels
		if b.PolicyName != name || !slices.Equal(b.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) ||
			!maps.Equal(selects, map[string]string{corev1.LabelMetadataName: ns.Name}) {
			t.Errorf("%s is bound by %+v", name, b)
		}
		if name == policyName && (b.ParamRef == nil || b.ParamRef.ParameterNotFoundAction == nil ||
			*b.ParamRef.ParameterNotFoundAction != admissionv1.DenyAction || b.ParamRef.Namespace != ns.Name) {
			t.Errorf("without its parameter %s allows everything: %+v", name, b.ParamRef)
		}
	}
}

// The image of the DaemonSet is one that the policy allows: both are built from the tree as they are.
func TestPolicyAllowsTheDaemonSetsImage(t *testing.T) {
	images := get[*corev1.ConfigMap](t, render(t, "."), "ConfigMap svcproxy/svcproxy-helper").Data
	ds := daemonSet(t)
	if image := ds.Spec.Template.Spec.Containers[0].Image; !slices.Contains(slices.Collect(maps.Values(images)), image) {
		t.Errorf("the DaemonSet runs %s, and %v is allowed", image, images)
	}
}
