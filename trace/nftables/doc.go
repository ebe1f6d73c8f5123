// SPDX-License-Identifier: Apache-2.0

// Package nftables reads nft -j list ruleset. This version tells which native base chains stand in a packet's way, and leaves
// their rules unread.
package nftables
