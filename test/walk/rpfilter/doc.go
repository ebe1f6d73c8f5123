// SPDX-License-Identifier: Apache-2.0

// Package rpfilter compares with the kernel what the project says of the reverse path filter: which datagrams it
// takes, by which interface, with which routes, rules and settings.
package rpfilter
