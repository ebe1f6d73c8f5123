// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(amd64 || arm64)

package gctune

// inHugePages does nothing: other systems choose the size of pages themselves.
func inHugePages(int64) {}
