// SPDX-License-Identifier: Apache-2.0

// Package captured compares the walk with the kernel for rules of real kube-proxies: they are loaded into a network
// namespace, a packet is sent to every frontend from every origin, and where connection tracking says that it went is
// compared with where the walk says that it may go. The same is done for what the program command writes in each mode.
package captured
