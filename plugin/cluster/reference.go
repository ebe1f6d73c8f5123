// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Reference is a SERVICE[:PORT] argument, taken apart.
type Reference struct {
	Input    string          // as it was given
	Name     string          // of a Service; empty where Address is given
	Address  netip.Addr      // of a Service, in place of its name
	Port     string          // number or name; empty: all
	Protocol corev1.Protocol // empty: all
}

// forms is what an error says would have been accepted.
const forms = "give a Service as NAME, svc/NAME or an IP address, with :PORT where one port is meant"

// ParseReference takes an argument apart. It asks no cluster: whether there is such a Service, Find says.
func ParseReference(arg string) (Reference, error) {
	ref := Reference{Input: arg}
	text, err := ref.cutProtocol(arg)
	if err != nil {
		return ref, err
	}
	if ok, err := ref.parseAddress(text); ok || err != nil {
		return ref, err
	}
	if kind, name, ok := strings.Cut(text, "/"); ok {
		if err := serviceKind(arg, kind, name); err != nil {
			return ref, err
		}
		text = name
	}
	name, port, hasPort := strings.Cut(text, ":")
	if hasPort {
		if err := ref.setPort(port); err != nil {
			return ref, err
		}
	}
	if name == "" {
		return ref, fmt.Errorf("%q names no Service: %s", arg, forms)
	}
	if len(validation.IsDNS1123Label(name)) > 0 {
		return ref, fmt.Errorf("%q is no Service's name: %s", arg, instead(name))
	}
	ref.Name = name
	return ref, nil
}

// cutProtocol takes a protocol off the end: "dns:53/udp", as kubectl prints ports.
func (r *Reference) cutProtocol(arg string) (string, error) {
	i := strings.LastIndexByte(arg, '/')
	if i < 0 || !strings.Contains(arg[:i], ":") || strings.Contains(arg, "://") {
		return arg, nil
	}
	switch p := corev1.Protocol(strings.ToUpper(arg[i+1:])); p {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		r.Protocol = p
		return arg[:i], nil
	}
	return "", fmt.Errorf("%q ends in protocol %q: it may be tcp, udp or sctp", arg, arg[i+1:])
}

// parseAddress reads IP, IP:PORT, [IPv6] and [IPv6]:PORT. A bare IPv6 address is never cut at its last colon.
func (r *Reference) parseAddress(text string) (ok bool, err error) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return true, r.setAddress(a)
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return false, nil
	}
	host := text[:i]
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	} else if strings.Contains(host, ":") {
		return false, nil // would be an IPv6 address without brackets
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false, nil //nolint:nilerr // it is a name, then
	}
	if err := r.setAddress(a); err != nil {
		return false, err
	}
	return true, r.setPort(text[i+1:])
}

func (r *Reference) setAddress(a netip.Addr) error {
	if a.Zone() != "" {
		return fmt.Errorf("%q has a zone: no Service has a link-local address", r.Input)
	}
	r.Address = a.Unmap()
	return nil
}

func (r *Reference) setPort(port string) error {
	if n, err := strconv.Atoi(port); err == nil {
		if n < 1 || n > 65535 {
			return fmt.Errorf("%q has port %s: a port is a number from 1 to 65535, or a name", r.Input, port)
		}
		port = strconv.Itoa(n)
	} else if len(validation.IsDNS1123Label(port)) > 0 {
		return fmt.Errorf("%q has port %q: a port is a number from 1 to 65535, or a name", r.Input, port)
	}
	r.Port = port
	return nil
}

// serviceKind checks the resource in front of a name. A namespace there is the likeliest slip: reports write
// namespace/name.
func serviceKind(arg, kind, name string) error {
	switch strings.ToLower(kind) {
	case "svc", "service", "services":
		return nil
	}
	if !strings.Contains(name, "/") {
		return fmt.Errorf("%q is no Service: %s (for a Service %s in namespace %s: %s -n %s)",
			arg, forms, name, kind, name, kind)
	}
	return fmt.Errorf("%q is no Service: %s", arg, forms)
}

// instead says what to give in place of something that has the form of a DNS name.
func instead(name string) string {
	labels := strings.Split(name, ".")
	if len(labels) < 2 || (len(labels) > 2 && labels[2] != "svc") {
		return forms
	}
	for _, l := range labels[:2] {
		if len(validation.IsDNS1123Label(l)) > 0 {
			return forms
		}
	}
	return fmt.Sprintf("for a DNS name, give the Service and its namespace apart: %s -n %s", labels[0], labels[1])
}
