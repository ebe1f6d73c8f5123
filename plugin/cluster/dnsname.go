// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// setDNSName takes a name with dots: one of the cluster's DNS (github.com/kubernetes/dns, docs/specification.md), of a
// node or of a load balancer. The domain of the cluster may be any.
func (r *Reference) setDNSName(name string) error {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	labels := strings.Split(name, ".")
	at := 2 // of "svc" or "pod": at least a Service and a namespace stand before it
	for at < len(labels) && labels[at] != "svc" && labels[at] != "pod" {
		at++
	}
	if at > 4 || at >= len(labels) {
		at = -1
	}
	if r.Kind == "" && at < 0 {
		r.Host = name
	}
	switch {
	case at < 0 && len(labels) == 2: // web.shop
		at = 2
	case at < 0:
	case labels[at] == "pod":
		return r.setPodName(labels[:at])
	case at == 3 && labels[at] == "svc": // web-0.web.shop.svc
		r.Pod = labels[0]
	case at == 4: // _http._tcp.web.shop.svc
		port, ok := strings.CutPrefix(labels[0], "_")
		protocol, isProtocol := strings.CutPrefix(labels[1], "_")
		if !ok || !isProtocol {
			return r.noDNSName()
		}
		r.Protocol = corev1.Protocol(strings.ToUpper(protocol))
		if err := r.setPort(port); err != nil {
			return err
		}
	}
	if at >= 2 {
		r.Name, r.Namespace = labels[at-2], labels[at-1]
		if len(validation.IsDNS1123Label(r.Name)) > 0 || len(validation.IsDNS1123Label(r.Namespace)) > 0 {
			return r.noDNSName()
		}
		return nil
	}
	if r.Host == "" || len(validation.IsDNS1123Subdomain(r.Host)) > 0 || numeric(labels[len(labels)-1]) {
		return r.noDNSName()
	}
	return nil
}

// numeric tells whether a label is a number: a name that ends in one is an address with an error in it.
func numeric(label string) bool { return strings.Trim(label, "0123456789") == "" }

// setPodName takes the first labels of ADDRESS.NAMESPACE.pod, the name of a pod by its address with dashes.
func (r *Reference) setPodName(labels []string) error {
	for _, separator := range []string{".", ":"} {
		if a, err := netip.ParseAddr(strings.ReplaceAll(labels[0], "-", separator)); err == nil && len(labels) == 2 {
			return r.setAddress(a)
		}
	}
	return r.noDNSName()
}

func (r *Reference) noDNSName() error {
	return fmt.Errorf("%q is not a Service name, nor a DNS name of one: %s", r.Input, forms)
}
