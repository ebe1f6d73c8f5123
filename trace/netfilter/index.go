// SPDX-License-Identifier: Apache-2.0

package netfilter

type index struct{}
