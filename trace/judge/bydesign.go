// SPDX-License-Identifier: Apache-2.0

package judge

import "github.com/svcproxy/kubectl-svcproxy/trace/expect"

// By design: the API asks for it that packets are refused, or left alone. The expectation says so (expect.Path.Reason,
// expect.Node.Ignored).
var (
	_ = register(kind{code: expect.ReasonNoEndpoints, severity: note, scope: onPath})
	_ = register(kind{code: expect.ReasonNoLocalEndpoints, severity: note, scope: onPath})
	_ = register(kind{code: expect.ReasonSourceRange, severity: note, scope: onPath})
	_ = register(kind{code: expect.ReasonNotForKubeProxy, severity: note, scope: onPath})
	_ = register(kind{code: expect.ReasonHeadless, severity: note, scope: onPath})
	_ = register(kind{code: expect.ReasonExternalName, severity: note, scope: onPath})
	_ = register(kind{code: expect.ReasonNodePortAddress, severity: note, scope: onPath})
)
