// SPDX-License-Identifier: Apache-2.0

// Package drops has the kernel tell which packets of some connections it discards, and why: those of all network
// namespaces, wherever in the kernel that happens. It needs BPF (CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN), and the
// kernel's description of its own types (CONFIG_DEBUG_INFO_BTF). What it attaches is gone with the process.
package drops
