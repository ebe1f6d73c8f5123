// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// notFound says that there is no such Service, and which ones may have been meant.
func notFound(objects *snapshot.Cluster, namespace string, ref Reference) error {
	if err := noHost(objects, ref); err != nil {
		return err
	}
	name := ref.Name
	var elsewhere, here, namespaces []string
	for _, svc := range objects.Services {
		switch {
		case svc.Namespace != namespace:
			if svc.Name == name {
				elsewhere = append(elsewhere, svc.Namespace)
			}
			namespaces = append(namespaces, svc.Namespace)
		default:
			here = append(here, svc.Name)
		}
	}
	what := fmt.Sprintf("service %q not found in namespace %q", name, namespace)
	slices.Sort(elsewhere)
	for _, meant := range []string{
		otherPair(objects, ref), withPort(objects, ref, ""), podOf(objects, ref.Namespace, ref.Name),
	} {
		if meant != "" {
			return fmt.Errorf("%s; did you mean %s?", what, meant)
		}
	}
	for _, p := range objects.Pods {
		if p.Name == name && (p.Namespace == namespace || ref.Namespace == "") {
			return fmt.Errorf("%s; there is a pod of that name: give pod/%s/%s", what, p.Namespace, p.Name)
		}
	}
	switch {
	case IsOtherKind(ref.Namespace) && !slices.Contains(namespaces, ref.Namespace):
		return fmt.Errorf("%s; a reference of the kind %s is not accepted: name the Service itself", what,
			ref.Namespace)
	case len(elsewhere) == 1 && ref.Namespace != "":
		return fmt.Errorf("%s; there is one in namespace %s: give %[2]s/%[3]s", what, elsewhere[0], name)
	case len(elsewhere) == 1:
		return fmt.Errorf("%s; there is one in namespace %s: add -n %s", what, elsewhere[0], elsewhere[0])
	case len(elsewhere) > 1:
		return fmt.Errorf("%s; there is one in each of the namespaces %s: add -n", what, shorten(elsewhere))
	case slices.Contains(namespaces, name) || name == namespace:
		return fmt.Errorf("%s; %s is a namespace: verify -n %s verifies its Services", what, name, name)
	case isKind(name) && ref.Namespace == "" && ref.Port != "":
		return fmt.Errorf("%s; did you mean %s/%s?", what, name, ref.Port)
	case isKind(name) || name == "all":
		return fmt.Errorf("%s; verify -A verifies all Services, verify -n NAMESPACE those of a namespace", what)
	case DidYouMean(name, here) != "":
		return fmt.Errorf("%s%s", what, DidYouMean(name, here))
	case len(here) == 0:
		return fmt.Errorf("%s, which has no Service at all: is the namespace right (-n)?%s", what,
			strings.Replace(DidYouMean(namespace, namespaces), "; did", " Did", 1))
	}
	slices.Sort(here)
	return fmt.Errorf("%s, which has %s", what, shorten(here))
}

// otherKinds are words for kinds that people name in place of a Service.
var otherKinds = []string{
	"ingress", "ingresses", "ing", "httproute", "httproutes", "gateway", "gateways", "gtw", "networkpolicy", "netpol",
	"configmap", "configmaps", "cm", "secret", "secrets", "cronjob", "cronjobs", "cj", "horizontalpodautoscaler", "hpa",
	"serviceaccount", "serviceaccounts", "sa", "serviceentry", "virtualservice", "container", "image",
}

// IsOtherKind tells whether a word is one of a kind that does not lead to a Service.
func IsOtherKind(word string) bool { return slices.Contains(otherKinds, word) }

// isKind tells whether a name is kubectl's word for a kind.
func isKind(name string) bool {
	_, ok := KindOf(name)
	return ok
}

// noHost says that there is no node or load balancer with the name of a reference, where it is more likely one of those
// than the name of a Service; nil where it is not.
func noHost(objects *snapshot.Cluster, ref Reference) error {
	nodes := nodeNames(objects)
	switch owners := nodePortOwners(objects, ref, ""); {
	case ref.Kind != "" || ref.Host == "":
		return nil
	case len(owners) > 0 && len(nodes) > 0:
		return fmt.Errorf("there is neither a Service nor a node %q; :%s is the NodePort of %s, on each node%s",
			ref.Host, ref.Port, owners[0].Name(), DidYouMean(ref.Host, nodes))
	case isPortNumber(ref.Host):
		return fmt.Errorf("no Service has NodePort %s, and none has the name %q", ref.Host, ref.Host)
	case ref.Name != "":
		return nil
	}
	return fmt.Errorf("%q is not the name of a Service, of a node or of a load balancer of a Service%s%s", ref.Input,
		DidYouMean(ref.Host, nodes), meantName(objects, ref.Host))
}

// meantName says which name of DNS may have been meant by one that is none.
func meantName(objects *snapshot.Cluster, host string) string {
	labels := strings.Split(host, ".")
	for _, svc := range objects.Services {
		if svc.Name != labels[0] || svc.Namespace != labels[1] {
			continue
		}
		rest := labels[2:]
		if len(rest) > 1 && alike(rest[0], "svc") {
			rest = rest[1:]
		}
		domain := strings.Join(rest, ".")
		if domain == "local" || domain == "cluster" {
			domain = "cluster.local"
		}
		return fmt.Sprintf("; did you mean %s.%s.svc.%s?", svc.Name, svc.Namespace, domain)
	}
	return ""
}

// otherPair is NAMESPACE/NAME of a Service whose two words a reference has in another order, or with another character
// between them; "" where there is none.
func otherPair(objects *snapshot.Cluster, ref Reference) string {
	for _, svc := range objects.Services {
		if svc.Namespace == ref.Name && (svc.Name == ref.Namespace || ref.Namespace == "" && svc.Name == ref.Port) {
			return svc.Namespace + "/" + svc.Name
		}
	}
	return ""
}

// withPort is what a reference means whose two words are a node or a Service and a port of it, with "/" between them in
// place of ":"; "" where there is no such port. asked is the namespace that is asked for; "": any.
func withPort(objects *snapshot.Cluster, ref Reference, asked string) string {
	if nodeNamed(objects, ref.Namespace) != "" && isPortNumber(ref.Name) {
		return ref.Namespace + ":" + ref.Name
	}
	var out string
	for _, svc := range objects.Services {
		if svc.Name != ref.Namespace || asked != "" && svc.Namespace != asked {
			continue
		}
		for i := range svc.Spec.Ports {
			if p := &svc.Spec.Ports[i]; p.Name == ref.Name || strconv.Itoa(int(p.Port)) == ref.Name {
				out = svc.Namespace + "/" + svc.Name + ":" + ref.Name
				if asked != "" {
					return svc.Name + ":" + ref.Name
				}
			}
		}
	}
	return out
}

// podOf is the DNS name of the pod that POD.SERVICE stands for within a namespace; "" where no endpoint has that name.
func podOf(objects *snapshot.Cluster, service, pod string) string {
	for _, svc := range objects.Services {
		if svc.Name == service && slices.Contains(hostsOf(objects, svc), pod) {
			return pod + "." + service + "." + svc.Namespace
		}
	}
	return ""
}

// findAsked answers to a reference with another namespace than that of -n. Its words may be something else within the
// namespace of -n: a pod and its Service, as in redis-0.redis.
func findAsked(objects *snapshot.Cluster, ref Reference) ([]Target, error) {
	if ref.Host != "" {
		for _, svc := range objects.Services {
			if svc.Namespace == ref.Asked && svc.Name == ref.Namespace && slices.Contains(hostsOf(objects, svc), ref.Name) {
				ports, err := portsOf(svc, ref)
				return []Target{{Service: svc, Ports: ports, Note: noteOfPod(objects, svc, ref.Name)}}, err
			}
		}
	}
	meant := withPort(objects, ref, ref.Asked)
	if meant != "" {
		meant = "; did you mean " + meant + "?"
	}
	return nil, fmt.Errorf("%q names namespace %s, and -n namespace %s: give one of them%s",
		ref.Input, ref.Namespace, ref.Asked, meant)
}

// DidYouMean ends an error about a name that there is not with those that are similar, of the ones that there are; "":
// none is.
func DidYouMean(name string, among []string) string {
	var similar []string
	for _, n := range among {
		if n != "" && n != name && alike(strings.ToLower(n), strings.ToLower(name)) && !slices.Contains(similar, n) {
			similar = append(similar, n)
		}
	}
	if len(similar) == 0 {
		return ""
	}
	slices.Sort(similar)
	return "; did you mean " + strings.Join(similar[:min(3, len(similar))], " or ") + "?"
}

// alike tells whether one name may be a slip for another: few letters apart, or one the beginning of the other.
func alike(a, b string) bool {
	if len(a) >= 3 && len(b) >= 3 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
		return true
	}
	return distance(a, b) <= max(1, min(len(a), len(b))/3)
}

// distance counts the letters to change, add, take away or swap with their neighbour to make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

// shorten joins a list, and cuts a long one with a count.
func shorten(list []string) string {
	const limit = 8
	if len(list) > limit {
		return strings.Join(list[:limit], ", ") + fmt.Sprintf(" and %d more", len(list)-limit)
	}
	return strings.Join(list, ", ")
}
