// SPDX-License-Identifier: Apache-2.0

// Package kernel holds the walk against the kernel: captured rules of real kube-proxies are loaded into a network namespace, a
// real packet is sent to every frontend from every origin, and where connection tracking says that it went is compared with
// where the walk says that it may go.
package kernel
