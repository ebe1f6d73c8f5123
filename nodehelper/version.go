// SPDX-License-Identifier: Apache-2.0

package nodehelper

import "runtime/debug"

// Set at release by -ldflags "-X github.com/svcproxy/kubectl-svcproxy/nodehelper.version=v1.2.3".
var version string

// Version is that of this program: what the release set, else what the Go toolchain wrote into the binary.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
