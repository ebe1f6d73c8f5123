// SPDX-License-Identifier: Apache-2.0

package judge

import "github.com/svcproxy/kubectl-svcproxy/trace/expect"

// NewerKubeProxy says that kube-proxy is newer than all whose behaviour is known.
const NewerKubeProxy = "NewerKubeProxy"

var _ = register(kind{code: NewerKubeProxy, severity: note, scope: onNode, by: newer})

// newer tells what a kube-proxy that nobody has compared with the expectation is judged by.
var newer = &detector{stage: stageCoverage, node: func(n *node) []issue {
	version := n.config.Version
	if !expect.Newer(version) {
		return nil
	}
	return []issue{{
		code: NewerKubeProxy, subject: "kube-proxy " + version,
		expected: "kube-proxy " + expect.Newest() + " or earlier", actual: version,
		message: "it is newer than " + expect.Newest() + ", the last that is known: what is expected is what " +
			expect.Newest() + " does, but for what the rules themselves show (the order of nftables' base chains, how " +
			"hairpin connections are masqueraded)",
	}}
}}
