// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// flags reads kube-proxy's command line.
func (l *loader) flags() (err error) {
	l.Flags, _, err = read(l, snapshot.FlagsFile, false, kubeproxy.ParseFlags, nil)
	return err
}
