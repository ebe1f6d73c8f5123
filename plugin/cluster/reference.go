// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// Reference is a SERVICE[:PORT] argument, taken apart.
type Reference struct {
	Input     string          // as it was given, without a password
	Kind      Kind            // of what Name names; "" where the argument does not tell
	Namespace string          // "" where the argument does not tell
	Name      string          // empty where only Host, Address or Chain is given
	Host      string          // a name that may also be that of a node or of a load balancer
	Address   netip.Addr      // in place of a name
	Chain     string          // the name of a chain of kube-proxy's, in place of a name
	Port      string          // number or name; empty: all
	Protocol  corev1.Protocol // empty: all
	Pod       string          // the first label of a pod's DNS name, of which Name is the Service
	Asked     string          // the namespace of -n, where Namespace is another one
	Scheme    string          // of a URL without a port, for which Port is the one that clients take
}

// forms is what an error says would have been accepted.
const forms = "give a Service as NAME, NAMESPACE/NAME, svc/NAME, a DNS name, a URL or an IP address, with :PORT " +
	"where one port is meant"

// readers take an argument apart, each in one form that people paste. The first one that knows the form decides.
var readers = []func(r *Reference, text string) (known bool, err error){
	(*Reference).readChain,
	(*Reference).readAddress,
	(*Reference).readPortAlone,
	(*Reference).readResource,
}

// ParseReference takes an argument apart. It asks no cluster: whether there is such a Service, Find says.
func ParseReference(arg string) (Reference, error) {
	ref := Reference{Input: arg}
	text, err := ref.single(tidy(arg))
	if err != nil {
		return ref, err
	}
	if err := ref.parse(text); err != nil {
		if strings.Contains(text, "://") {
			return ref, err
		}
		err = ref.meant(text, err)
		return ref, err
	}
	return ref, nil
}

// parse takes a text apart.
func (r *Reference) parse(text string) error {
	text, err := r.cutURL(text)
	if err != nil {
		return err
	}
	if strings.ContainsAny(text, " \n\t") {
		return fmt.Errorf("%q is more than one name or address: %s", r.Input, forms)
	}
	if text, err = r.cutProtocol(text); err != nil {
		return err
	}
	for _, read := range readers {
		if known, err := read(r, text); known || err != nil {
			return err
		}
	}
	return fmt.Errorf("%q names no Service: %s", r.Input, forms)
}

// cutProtocol takes a protocol off the end: "dns:53/udp", as kubectl prints ports.
func (r *Reference) cutProtocol(text string) (string, error) {
	i := strings.LastIndexByte(text, '/')
	if i < 0 || !strings.Contains(text[:i], ":") {
		return text, nil
	}
	switch p := corev1.Protocol(strings.ToUpper(text[i+1:])); p {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		r.Protocol = p
		return text[:i], nil
	case "": // the path of a URL without a scheme
		return text[:i], nil
	}
	return "", fmt.Errorf("%q ends in %q: a port may be followed by /tcp, /udp or /sctp; leave out a path",
		r.Input, text[i:])
}

// readAddress reads IP, IP:PORT, [IPv6] and [IPv6]:PORT. A bare IPv6 address is never cut at its last colon.
func (r *Reference) readAddress(text string) (known bool, err error) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return true, r.setAddress(a)
	}
	if host, port, ok := strings.Cut(text, ":"); slices.Contains(loopbackNames, strings.ToLower(host)) {
		r.Address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if !ok {
			return true, nil
		}
		return true, r.setPort(port)
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

// loopbackNames are the names that /etc/hosts has for the loopback address.
var loopbackNames = []string{"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost"}

func (r *Reference) setAddress(a netip.Addr) error {
	if a.Zone() != "" {
		return fmt.Errorf("%q has a zone: no Service has a link-local address", r.Input)
	}
	r.Address = a.Unmap()
	return nil
}

// pastedPorts is the column PORT(S) of kubectl get services: PORT:NODEPORT.
var pastedPorts = lazyregexp.New(`^(\d+):\d+$`)

func (r *Reference) setPort(port string) error {
	if m := pastedPorts().FindStringSubmatch(port); m != nil {
		return fmt.Errorf("%q has port %q: give the port, %s, or the NodePort alone", r.Input, port, m[1])
	}
	if n, err := strconv.Atoi(port); err == nil {
		if n < 1 || n > 65535 {
			return fmt.Errorf("%q has port %s: a port is a number from 1 to 65535, or a name", r.Input, port)
		}
		port = strconv.Itoa(n)
	} else if len(validation.IsDNS1123Label(strings.ToLower(port))) > 0 { // which ports there are, the Service tells
		return fmt.Errorf("%q has port %q: a port is a number from 1 to 65535, or a name", r.Input, port)
	}
	r.Port = port
	return nil
}

// readPortAlone reads :30080, a NodePort of whichever node.
func (r *Reference) readPortAlone(text string) (known bool, err error) {
	port, ok := strings.CutPrefix(text, ":")
	if !ok {
		return false, nil
	}
	if _, err := strconv.Atoi(port); err != nil {
		return false, nil //nolint:nilerr // another error says what may be given
	}
	return true, r.setPort(port)
}

// readResource reads [[KIND/]NAMESPACE/]NAME[:PORT], KIND/NAME and the path of an object in the API.
func (r *Reference) readResource(text string) (known bool, err error) {
	text, port, hasPort := strings.Cut(text, ":")
	if hasPort {
		if err := r.setPort(port); err != nil {
			return false, err
		}
	}
	if text == "" {
		return false, nil
	}
	if _, path, ok := strings.Cut("/"+text, "/namespaces/"); ok {
		if parts := strings.Split(path, "/"); len(parts) == 3 {
			text = parts[1] + "/" + parts[0] + "/" + parts[2]
		}
	}
	parts := strings.Split(text, "/")
	name := parts[len(parts)-1]
	if name == "" {
		return false, nil
	}
	if err := r.setPlace(parts[:len(parts)-1]); err != nil {
		return false, err
	}
	return true, r.setName(name)
}

// setPlace takes what stands before a name: kind, namespace, or both.
func (r *Reference) setPlace(parts []string) error {
	var namespace string
	switch len(parts) {
	case 0:
		return nil
	case 1:
		if kind, ok := KindOf(parts[0]); ok {
			r.Kind = kind
			return nil
		}
		namespace = parts[0]
	case 2:
		kind, ok := KindOf(parts[0])
		if namespace = parts[1]; !ok {
			kind, ok = KindOf(parts[1])
			namespace = parts[0]
		}
		if !ok {
			return fmt.Errorf("%q is not a Service: %s; a kind may be %s", r.Input, forms, words())
		}
		r.Kind = kind
	default:
		return fmt.Errorf("%q is not a Service: %s", r.Input, forms)
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 {
		if strings.Contains(namespace, ".") {
			return fmt.Errorf("%q begins with %q, which is not a kind that leads to a Service: it may be %s; "+
				"a DNS name is given without a path", r.Input, namespace, words())
		}
		return fmt.Errorf("%q is not a Service, as %q is not a valid name of a namespace: %s", r.Input, namespace, forms)
	}
	r.Namespace = namespace
	return nil
}

// setName takes the name of an object.
func (r *Reference) setName(name string) error {
	switch {
	case r.Kind == KindNode:
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("%q is not a valid name of a node", r.Input)
		}
		r.Host = name
		return nil
	case r.Kind != "" && r.Kind != KindService:
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("%q is not a valid name of a %s", r.Input, r.Kind.Word())
		}
		r.Name = name
		return nil
	case len(validation.IsDNS1123Label(name)) == 0:
		r.Name = name
		if r.Kind == "" && r.Namespace == "" {
			r.Host = name
		}
		return nil
	case strings.Contains(name, ".") && r.Namespace == "":
		return r.setDNSName(name)
	}
	if lower := strings.ToLower(name); lower != name && len(validation.IsDNS1123Label(lower)) == 0 {
		return fmt.Errorf("%q is not a Service name: names are written in lower case, %s", r.Input, lower)
	}
	return fmt.Errorf("%q is not a Service name: %s", r.Input, forms)
}
