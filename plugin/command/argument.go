// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// service reads an argument that leads to a Service. namespace is the argument's own, or the one of names without one.
func (e *environment) service(arg string) (ref cluster.Reference, namespace string, err error) {
	if ref, err = cluster.ParseReference(arg); err != nil {
		return ref, "", run.Usagef("%w", err)
	}
	switch given := *e.kube.Namespace; {
	case ref.Namespace == "":
		namespace, err = e.namespace()
		return ref, namespace, err
	case given != "" && given != ref.Namespace && cluster.IsOtherKind(ref.Namespace):
		return ref, "", run.Usagef("%q: a reference of the kind %s is not accepted: name the Service itself",
			ref.Input, ref.Namespace)
	case given != "" && given != ref.Namespace:
		ref.Asked = given // what there is tells what may have been meant
	}
	return ref, ref.Namespace, nil
}

// joinKind makes one argument of a kind and a name that are given as two, as kubectl takes them: svc web.
func joinKind(args []string) []string {
	if len(args) != 2 || strings.ContainsAny(args[0], "/:") {
		return args
	}
	if _, ok := cluster.KindOf(args[0]); !ok {
		return args
	}
	return []string{args[0] + "/" + args[1]}
}

// isLabel tells whether a text may be the name of a Service or of a namespace.
func isLabel(text string) bool { return len(validation.IsDNS1123Label(text)) == 0 }
