// SPDX-License-Identifier: Apache-2.0

// Package routing compares with the kernel what the project says of routes: which rule, table and next hop a packet
// gets, for random rules and routes, and where the packets of real connections leave.
package routing
