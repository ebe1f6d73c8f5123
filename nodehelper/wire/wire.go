// SPDX-License-Identifier: Apache-2.0

// Package wire is what the plugin and a node's helper say to one another, over any pair of byte streams: the standard
// streams of a container over attach or exec, or a pipe within one process.
//
// Both begin with a hello, which is one line of text:
//
//	0x16 "svcproxy-wire " {"protocol":1,"build":"v1.2.3"} "\n"
//
// This line never changes between versions of the protocol, so that each side can tell which version the other one
// speaks. The plugin speaks first, as what a container writes before somebody attaches to it is lost. Whatever stands
// before the hello (a runtime's error text, another program's output) is noise, and is kept for the error message.
//
// After its hello each side sends one DEFLATE stream (RFC 1951), flushed at the end of each message. In it are frames:
// one byte that says of which kind, four bytes of length (big-endian), and the payload, which is JSON but for the bytes
// of files. The plugin asks for one thing at a time. An answer is any number of progress messages and files, and it
// ends with a trailer that counts and hashes what came before, or with an error; an answer without a trailer is none.
//
// Neither side trusts the other with its memory: everything that is kept has a bound, and large files are compressed in
// memory until they are needed.
package wire

import (
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The requests.
const (
	// MethodCollect has the helper read its node; its parameters are CollectParams.
	MethodCollect = "collect"
	// MethodJudge has the helper read its node and judge all Services there; its parameters are JudgeParams, the answer
	// is the file JudgedFile.
	MethodJudge = "judge"
	// MethodPod has the helper read the network namespace of a pod of its node; its parameters are PodParams.
	MethodPod = "pod"
	// MethodNames has the helper ask name servers from a pod's network namespace; its parameters are NamesParams, the
	// answer is the file snapshot.NamesFile.
	MethodNames = "names"
	// MethodHealth has the helper ask health-check ports of its node; its parameters are HealthParams, the answer is the
	// file snapshot.HealthFile.
	MethodHealth = "health"
	// MethodProgram has the helper program paths; its parameters are ProgramParams, the answer is the file ProgramFile.
	MethodProgram = "program"
	// MethodUndo has the helper undo programmed paths; its parameters are UndoParams, the answer is the file ProgramFile.
	MethodUndo = "undo"
	// MethodOrphans has the helper list, and remove, what outlives the journal; its parameters are OrphansParams, the
	// answer is the file ProgramFile: Orphans.
	MethodOrphans = "orphans"
	// MethodProbe has the helper make connections; its parameters are ProbeParams, the answer is the file
	// snapshot.ProbesFile.
	MethodProbe = "probe"
	// MethodFollow has the helper follow connections that others make, in its node's kernel, from then on; its parameters
	// are FollowParams, the answer has no file.
	MethodFollow = "follow"
	// MethodFollowed ends what MethodFollow began; its parameters are FollowedParams, the answer is the file
	// snapshot.FollowedFile.
	MethodFollowed = "followed"
)

// CollectParams say which files of the snapshot contract to read.
type CollectParams struct {
	// Files are their names. None: all of them.
	Files []string `json:"files,omitempty"`
}

// PodParams say which pod's network namespace to read: all files of snapshot.PodFiles that there are.
type PodParams struct {
	// UIDs are names by which the pod's control groups are found: its UID, and the hash of a static pod's manifest.
	UIDs []string `json:"uids,omitempty"`
	// Addresses are the pod's, by which it is found where its control groups have another name.
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// NamesParams say what to ask, and from which pod.
type NamesParams struct {
	Pod       PodParams               `json:"pod"`
	Questions []snapshot.NameQuestion `json:"questions"`
}

// HealthParams say which ports of the node to ask.
type HealthParams struct {
	Ports []netip.AddrPort `json:"ports"`
}

// ProbeParams say what to connect to.
type ProbeParams struct {
	Targets []snapshot.ProbeTarget `json:"targets"`
	// Pods are the pods with whose addresses targets are from. Of others no more than the address is known.
	Pods []PodParams `json:"pods,omitempty"`
}

// FollowParams say what connections to follow, and in which network namespaces beside the node's.
type FollowParams struct {
	Servers []snapshot.FollowTarget `json:"servers"`
	Clients []netip.Addr            `json:"clients"` // addresses, as they are behind translations, too
	Pods    map[string]PodParams    `json:"pods,omitempty"`
	// Rules: the kernel traces the rules of the node's network namespace, too. Where probes are made it does so anyway.
	Rules bool `json:"rules,omitempty"`
	// Tunnels are the ports of UDP at which the node takes packets of VXLAN.
	Tunnels []uint16 `json:"tunnels,omitempty"`
}

// FollowedParams say of which connections to tell.
type FollowedParams struct {
	Flows []snapshot.Flow `json:"flows"`
}

// File is one file of an answer at its sender, or why there is none.
type File struct {
	Name   string // one path element
	Data   []byte
	Unread string // in place of Data: one sentence that says why it could not be read
}

// Received is one file of an answer at its receiver, or why there is none.
type Received struct {
	Name    string
	Content snapshot.Packed
	Unread  string // in place of Content: one sentence that says why it could not be read
}

// Bounds on what one side keeps of what the other one sends. Those of whole answers are in trace/bounds.
const (
	maxHello = 4 << 10  // bytes of a hello
	maxNoise = 64 << 10 // bytes before it
	maxText  = 8 << 10  // bytes of a sentence that is shown to a person
	maxBody  = 64 << 10 // bytes of a frame's JSON, but for requests
	maxChunk = 1 << 20  // bytes of a file in one frame
	chunk    = 64 << 10 // bytes of a file in one frame, as its writer chooses
)

// payloads are the longest payloads of each kind of frame, in bytes.
var payloads = map[kind]int{
	kindRequest: bounds.Request, kindProgress: maxBody, kindFile: maxBody, kindChunk: maxChunk, kindFileEnd: maxBody,
	kindDone: maxBody, kindError: maxBody,
}

// Limits bound an answer.
type Limits struct {
	File       int64 // bytes of one file
	Answer     int64 // bytes of all files
	Files      int   // how many
	Progress   int   // how many progress messages
	Compressed int64 // bytes of the stream
	Held       int64 // bytes in memory, compressed, above which an answer is large
}

// DefaultLimits are those of trace/bounds.
var DefaultLimits = Limits{
	File: bounds.File, Answer: bounds.Node, Files: bounds.AnswerFiles, Progress: bounds.Progress,
	Compressed: bounds.Compressed, Held: bounds.Held,
}

// requestJSON are the limits of a request's parameters: a list of targets, or a plan, whose elements take more memory
// than text.
var requestJSON = bounds.JSON{
	Depth: bounds.JSONDepth, List: bounds.RequestList, Values: bounds.RequestValues, Objects: bounds.RequestValues,
}

// A name becomes a part of a path on the plugin's side, so a helper must not be able to leave a directory with
// it.
var fileName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func checkName(name string) error {
	if !fileName().MatchString(name) {
		return fmt.Errorf("%q is not a name of a file: use letters, digits, '.', '_' and '-'", safetext.Line(name, 200))
	}
	return nil
}
