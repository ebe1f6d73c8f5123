// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
)

const (
	grants       = "deploy/rbac.yaml grants it"
	enforceKey   = "pod-security.kubernetes.io/enforce"
	privileged   = "privileged"
	howToEnforce = "kubectl label namespace NAME " + enforceKey + "=" + privileged
)

// rbac is the authorizer's refusal (apiserver, pkg/endpoints/handlers/responsewriters/errors.go); admission refuses in
// other texts, with the same status.
var rbac = lazyregexp.New(`User "([^"]*)" cannot ([a-z]+) resource "([^"]+)" in API group "[^"]*"` +
	`(?: in the namespace "([^"]+)")?`)

// quota is the refusal of the ResourceQuota admission plugin, missing that of a quota for what the pod does not say.
var (
	exceeded = lazyregexp.New(`exceeded quota: ([^,]+), (.*)$`)
	missing  = lazyregexp.New(`failed quota: ([^:]+): (.*)$`)
	limits   = lazyregexp.New(`is forbidden: \[?((?:maximum|minimum) .*?)\]?$`)
	security = lazyregexp.New(`violates PodSecurity "([^"]+)": (.*)$`)
)

// forbidden is one kind of refusal.
type forbidden struct {
	text lazyregexp.Regexp
	say  func(l *Launcher, ctx context.Context, m []string) string
}

// refusals are the kinds of refusal of a pod, each with its sentence.
var refusals = []forbidden{
	{byPolicy, (*Launcher).sayPolicy},
	{security, (*Launcher).sayPodSecurity},
	{exceeded, func(l *Launcher, _ context.Context, m []string) string {
		return fmt.Sprintf("the ResourceQuota %s of namespace %s leaves no room for a helper pod (%s): "+
			"choose another with --helper-namespace", m[1], l.o.Namespace, m[2])
	}},
	{missing, func(l *Launcher, _ context.Context, m []string) string {
		return fmt.Sprintf("the ResourceQuota %s of namespace %s refuses the helper pod (%s): "+
			"choose another with --helper-namespace", m[1], l.o.Namespace, m[2])
	}},
	{limits, func(l *Launcher, _ context.Context, m []string) string {
		return fmt.Sprintf("a LimitRange of namespace %s refuses the helper pod (%s): "+
			"choose another with --helper-namespace", l.o.Namespace, m[1])
	}},
}

// Forbidden makes of the API server's refusal a sentence with the verb, the resource, the namespace and the user; of
// any other error itself.
func Forbidden(err error) error {
	if err == nil {
		return nil
	}
	// A refused stream comes as plain text, without a status.
	m := rbac().FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	where := "in the cluster"
	if m[4] != "" {
		where = "in " + m[4]
	}
	user := safetext.Line(m[1], 300)
	return &forbiddenError{fmt.Sprintf("cannot %s %s %s as user %s: %s", m[2], m[3], where, user, grants), err}
}

// forbiddenError is a refusal with a sentence of this project.
type forbiddenError struct {
	text string
	err  error
}

func (e *forbiddenError) Error() string { return e.text }
func (e *forbiddenError) Unwrap() error { return e.err }

// refused says why the API server did not take the helper's pod.
func (l *Launcher) refused(ctx context.Context, err error) error {
	if friendly := Forbidden(err); friendly != err { //nolint:errorlint // is it the same one?
		return friendly
	}
	text := safetext.Line(err.Error(), 2000)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		for _, f := range refusals {
			if m := f.text().FindStringSubmatch(text); m != nil {
				return &forbiddenError{f.say(l, ctx, m), err}
			}
		}
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no namespace %s for the helper pod: choose another with --helper-namespace",
			l.o.Namespace)
	}
	return fmt.Errorf("the API server did not accept the helper pod in namespace %s: %w", l.o.Namespace, err)
}

// sayPodSecurity names a namespace that would take the pod.
func (l *Launcher) sayPodSecurity(ctx context.Context, m []string) string {
	text := fmt.Sprintf("namespace %s enforces Pod Security %q, which refuses the helper pod (%s): ",
		l.o.Namespace, m[1], withoutDetails(m[2]))
	list, err := l.o.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return text + "choose with --helper-namespace one that has the label " + enforceKey + "=" + privileged
	}
	if name := lenient(list.Items); name != "" {
		return text + "--helper-namespace " + name + " would accept it"
	}
	return text + "no namespace accepts it; create one with: " + howToEnforce
}

// withoutDetails leaves of "privileged (container "x" must not …), host namespaces (…)" what is outside of
// parentheses.
func withoutDetails(text string) string {
	var b strings.Builder
	depth := 0
	for _, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth = max(depth-1, 0)
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return strings.ReplaceAll(safetext.Line(b.String(), 500), " ,", ",")
}

// lenient picks a namespace that takes privileged pods: by its label, else kube-system, else one that enforces nothing,
// which is only likely to, as the API server may have a stricter default.
func lenient(namespaces []corev1.Namespace) string {
	rank := func(n *corev1.Namespace) int {
		level, labelled := n.Labels[enforceKey]
		switch {
		case n.DeletionTimestamp != nil, labelled && level != privileged:
			return 0
		case labelled && n.Name == metav1.NamespaceSystem:
			return 4
		case labelled:
			return 3
		case n.Name == metav1.NamespaceSystem:
			return 2
		}
		return 1
	}
	if len(namespaces) == 0 {
		return ""
	}
	best := slices.MaxFunc(namespaces, func(a, b corev1.Namespace) int { return rank(&a) - rank(&b) })
	if rank(&best) == 0 {
		return ""
	}
	return best.Name
}

// streamRefused makes a sentence of what kept a stream from a helper.
func (l *Launcher) streamRefused(err error) error {
	if _, ok := errors.AsType[*forbiddenError](err); ok {
		return err
	}
	if friendly := Forbidden(err); friendly != err { //nolint:errorlint // is it the same one?
		return friendly
	}
	if p, ok := errors.AsType[*peer.Error](err); ok {
		return fmt.Errorf("the helper in image %s (build %s) is %s than this plugin (build %s), and they would "+
			"misunderstand each other: use the image of the plugin's own version, %s",
			l.o.Image, p.Peer.Build, p.Age(), p.Self.Build, DefaultImage(l.o.Build))
	}
	return err
}

// transient says whether asking again may help: the API server is restarting, or too busy.
func transient(err error) bool {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err),
		apierrors.IsConflict(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsAlreadyExists(err):
		return false
	case apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsInternalError(err), apierrors.IsTimeout(err):
		return true
	}
	// No answer at all.
	var status apierrors.APIStatus
	return !errors.As(err, &status)
}
