// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dialTime is how long one address of the API server may take to accept a connection.
const dialTime = 5 * time.Second

// Dialer connects to the API server at the addresses of its own endpoints, so that the agent does not depend on the
// rules that it judges. While it knows none, and when none of them answers, it connects to the address that it is asked
// for. TLS goes on verifying the name that was asked for.
type Dialer struct {
	mu        sync.Mutex
	addresses []string // HOST:PORT; the one that answered last comes first
	fixed     []string // that were given by hand
}

// NewDialer makes a Dialer. addresses (HOST:PORT) are tried before those that the API tells, and may be none.
func NewDialer(addresses []string) *Dialer { return &Dialer{fixed: addresses} }

// use sets the addresses that the API tells; none leaves them as they are.
func (d *Dialer) use(addresses []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(addresses) > 0 {
		d.addresses = addresses
	}
}

// Dial makes a connection, for rest.Config.
func (d *Dialer) Dial(ctx context.Context, network, asked string) (net.Conn, error) {
	d.mu.Lock()
	try := slices.Concat(d.fixed, d.addresses)
	d.mu.Unlock()
	if !slices.Contains(try, asked) {
		try = append(try, asked)
	}
	var errs []error
	for _, address := range try {
		conn, err := dial(ctx, network, address)
		if err == nil {
			d.prefer(address)
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// dial connects to one address.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

// prefer tries an address first from now on.
func (d *Dialer) prefer(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.addresses, address); i > 0 {
		d.addresses = slices.Concat([]string{address}, d.addresses[:i], d.addresses[i+1:])
	}
}

// apiAddresses are those of the endpoints of the Service kubernetes.
func apiAddresses(all []*discoveryv1.EndpointSlice) []string {
	var out []string
	for _, s := range all {
		if s.Namespace != metav1.NamespaceDefault || s.Labels[discoveryv1.LabelServiceName] != "kubernetes" {
			continue
		}
		for i := range s.Ports {
			if s.Ports[i].Port == nil {
				continue
			}
			port := strconv.Itoa(int(*s.Ports[i].Port))
			for k := range s.Endpoints {
				e := &s.Endpoints[k]
				if e.Conditions.Ready != nil && !*e.Conditions.Ready {
					continue
				}
				for _, a := range e.Addresses {
					out = append(out, net.JoinHostPort(a, port))
				}
			}
		}
	}
	return out
}
