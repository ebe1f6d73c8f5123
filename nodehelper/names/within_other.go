// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package names

import (
	"errors"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
)

func within(podns.Pod, func() error) error {
	return errors.New("nodes run Linux, and this system does not")
}
