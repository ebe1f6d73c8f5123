// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "github.com/svcproxy/kubectl-svcproxy/plugin/launch"

// local answers for --local: nodes run Linux.
func local() launch.Serve { return nil }
