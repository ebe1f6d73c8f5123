// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	_ "k8s.io/kubernetes/pkg/proxy/iptables"
	_ "k8s.io/kubernetes/pkg/util/iptables/testing"
	_ "github.com/svcproxy/kubectl-svcproxy/trace/expect"
	_ "github.com/svcproxy/kubectl-svcproxy/trace/iptables"
	_ "github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)
