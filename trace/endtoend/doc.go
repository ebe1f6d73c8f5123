// SPDX-License-Identifier: Apache-2.0

// Package endtoend follows a connection over all that it touches: the client's pod, its node, the network between the
// nodes, the endpoint's node, its pod, and the answer back through all of them. It walks the packet through each
// network namespace by that one's own rules and routes, and compares what both ends say of the network between. It
// knows no
// Service: where the packet goes is what the client's node has made of it.
//
// Each segment is right, wrong or unknown. Right is only what was read and agrees; what was not read is unknown, with
// the command that tells.
package endtoend
