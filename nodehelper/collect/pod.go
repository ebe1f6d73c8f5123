// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
)

// Pod reads the network namespace of a pod, from within, and calls emit for each file of snapshot.PodFiles. Where the
// pod cannot be found, or is not entered, there is an error; [podns.ErrNode] says that it has no namespace of its own.
// It changes nothing, and loads no module of the kernel.
func Pod(ctx context.Context, o Options, pod podns.Pod, emit func(File) error) error {
	return collectPod(ctx, o, pod, emit)
}
