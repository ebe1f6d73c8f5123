// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/svcproxy/kubectl-svcproxy/plugin/cluster"

// subject is the one Service that a command is about, as it was named.
type subject struct {
	ns  string // of -n, or the kubeconfig's
	ref cluster.Reference
}

// fill reads the command's argument, and what the flags leave open of the output and of the namespace.
func (o *subject) fill(s *shared, p *printOptions, arg string) (err error) {
	if o.ref, err = cluster.ParseReference(arg); err != nil {
		return usagef("%w", err)
	}
	if err := p.complete(); err != nil {
		return err
	}
	o.ns, err = s.namespace()
	return err
}
