// SPDX-License-Identifier: Apache-2.0

package compare

import "github.com/svcproxy/kubectl-svcproxy/trace/snapshot"

// Beside are the files of a node, or of a pod, that have no part of their own, with what is said of them. What depends
// on them are verdicts of paths and findings, which are compared.
var Beside = map[string]string{
	snapshot.ConntrackFile:    "connections come and go",
	snapshot.MetricsFile:      "counters; kube-proxy's version in it is compared",
	snapshot.HealthzFile:      "times; whether kube-proxy is healthy is compared",
	snapshot.LivezFile:        "times",
	snapshot.TimeFile:         "the clock",
	snapshot.ProbesFile:       "what single connections showed",
	snapshot.NFTDumpFile:      "numbers of the kernel's; the rules in it are compared",
	snapshot.SocketCountsFile: "sockets come and go",
	snapshot.UnreadFile:       "what was not read is listed as not compared",
}
