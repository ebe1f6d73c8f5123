// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
)

// local answers for --local: on a node this program is its own helper.
func local() launch.Serve {
	return func(ctx context.Context, in io.Reader, out io.Writer) error {
		return nodehelper.Serve(ctx, in, out, nodehelper.Options{Root: "/", Build: nodehelper.Version()})
	}
}
