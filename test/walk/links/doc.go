// SPDX-License-Identifier: Apache-2.0

// Package links compares the walk with the kernel at the hooks of devices and bridges: random rules in tables of the
// families netdev, inet and bridge, beside some of ip and ip6, and packets of pods at the ports of a bridge, of others,
// and of the node. The kernel is right.
package links
