// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import "context"

// wait sleeps until the context ends.
func wait(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
