// SPDX-License-Identifier: Apache-2.0

//go:build !unix && !windows

package launch

import "os/exec"

// detach has no meaning here.
func detach(*exec.Cmd) {}
