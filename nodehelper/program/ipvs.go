// SPDX-License-Identifier: Apache-2.0

package program

// IPVS is what IPVS and the node were like before.
type IPVS struct{}
