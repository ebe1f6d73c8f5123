// SPDX-License-Identifier: Apache-2.0

package wire

// JudgeParams are what a helper judges its node by, as snapshot.PackObjects makes it. The objects of all nodes are made
// once for all of them.
type JudgeParams struct {
	Node    string `json:"node"`
	Objects []byte `json:"objects"`
	// Own are the Node itself, its pods, and the EndpointSlices that have endpoints there, which replace those of Objects.
	Own []byte `json:"own"`
}

// JudgedFile is the answer to MethodJudge: a report.NodeReport, of which paths that are a match are left out. Beside it
// are the files by which others know the node's interfaces (judge.PeerFiles).
const JudgedFile = "judged.json"
