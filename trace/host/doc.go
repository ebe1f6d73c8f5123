// SPDX-License-Identifier: Apache-2.0

// Package host knows a node's addresses, links and routes as the snapshot has them, and answers the kernel's routing
// questions from them, or says that it cannot. Use [Parse] to make a [Network] of the files of a snapshot.
package host
