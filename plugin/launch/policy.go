// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// The names in deploy/policy.yaml.
const (
	// helperPolicy is the ValidatingAdmissionPolicy that lets nothing but helper pods run in a namespace, and the
	// ConfigMap that is its parameter.
	helperPolicy = "svcproxy-helper"
	// imageKey begins the keys of that ConfigMap whose values are images.
	imageKey = "image."
)

// The texts with which the API server refuses what a ValidatingAdmissionPolicy does not allow, with any status: that of
// a validation is its own reason's, that of a parameter that is missing Invalid
// (apiserver v0.37, pkg/admission/plugin/policy/validating/dispatcher.go and policy/generic/policy_dispatcher.go).
var (
	byPolicy  = lazyregexp.New(`ValidatingAdmissionPolicy '([^']+)' (?:with binding '[^']+' )?denied request: (.*)$`)
	ofImage   = lazyregexp.New(`^the image \S+ is not allowed`)
	notOfAKey = lazyregexp.New(`[^A-Za-z0-9._-]+`)
)

const (
	noParams = "no params found for policy binding with `Deny` parameterNotFoundAction"
	// notYet is said in the moment after a policy was applied, before the API server has read its parameter.
	notYet = "not yet synced to use for admission"
)

// sayPolicy says what a ValidatingAdmissionPolicy refuses, and for that of deploy/ how to allow it.
func (l *Launcher) sayPolicy(_ context.Context, m []string) string {
	name, text := m[1], m[2]
	refuses := fmt.Sprintf("the ValidatingAdmissionPolicy %s refuses the helper pod in namespace %s", name, l.o.Namespace)
	configMap := "kubectl -n " + l.o.Namespace + " %s configmap " + helperPolicy
	switch {
	case name != helperPolicy:
		return fmt.Sprintf("%s (%s): choose another with --helper-namespace", refuses, text)
	case strings.Contains(text, noParams):
		return fmt.Sprintf("%s: there is no ConfigMap %s with the images that are allowed; create it with: %s", refuses,
			helperPolicy, fmt.Sprintf(configMap, "create")+" --from-literal="+shellWord(keyOf(l.o.Image)+"="+l.o.Image))
	case strings.Contains(text, notYet):
		return fmt.Sprintf("%s: the API server has only just started to read it (%s): try again in a moment", refuses, text)
	case ofImage().MatchString(text):
		patch, err := json.Marshal(map[string]any{"data": map[string]string{keyOf(l.o.Image): l.o.Image}})
		if err != nil {
			return refuses + ": " + text
		}
		return fmt.Sprintf("%s: the image %s is not allowed; allow it with: %s", refuses, l.o.Image,
			fmt.Sprintf(configMap, "patch")+" --type merge -p "+shellWord(string(patch)))
	}
	return fmt.Sprintf("%s: %s; apply the deploy/ of this plugin's version, or choose another with --helper-namespace",
		refuses, text)
}

// keyOf is the key of the ConfigMap for an image. Images that differ have keys that differ in practice: one is the
// image's own text, without what a key may not have.
func keyOf(image string) string {
	const most = 253 // apimachinery, pkg/util/validation, IsConfigMapKey
	key := imageKey + strings.Trim(notOfAKey().ReplaceAllString(image, "-"), "-")
	return key[:min(len(key), most)]
}

// shellWord makes one word of a text for a shell.
func shellWord(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
