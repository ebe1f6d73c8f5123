// SPDX-License-Identifier: Apache-2.0

// Package bounds says how much is read of what others write: nodes, snapshots, the API server, the plugin's peer on a
// node. All of them may be hostile or damaged, and what reads them runs as root on nodes or on the machine of a
// person who has no time for a program that is out of memory. docs/security.md prints the table of these limits.
//
// What passes a limit is an [*Error], which names the input, the limit, and what would be accepted. Bytes are counted
// after decompression.
package bounds

import "time"

// Limits of files, of snapshots and of helpers.
const (
	// File is the largest file, in bytes. The rules of 5,000 Services are 8 MB as iptables-save prints them, and 26 MB
	// as nft -j does.
	File = 128 << 20
	// Node is the most for all files of one node, in bytes, and for the objects of a cluster: of each node there is more
	// than one list of the same rules.
	Node = 256 << 20
	// SmallFile is the largest file that lists no rules, sets or connections, in bytes: kube-proxy's metrics, addresses,
	// routes, settings, reasons. 100,000 routes are 12 MB.
	SmallFile = 32 << 20
	// Config is the largest configuration of kube-proxy, in bytes: what fits into a ConfigMap (MaxSecretSize in
	// pkg/apis/core/types.go).
	Config = 1 << 20
	// YAML is the largest file of the cluster's objects as YAML, in bytes, and YAMLValues the most values in it: reading
	// one takes 500 bytes and 2 µs, ten times what JSON takes. The EndpointSlices of 5,000 Services have 270,000.
	YAML = 16 << 20
	// YAMLValues: see YAML.
	YAMLValues = 500_000
	// Line is the longest line of a file that has lines, in bytes. A rule of iptables-save has 200, a connection 300.
	Line = 1 << 20
	// Lines is the most lines of a file. 5,000 Services are 100,000 lines of iptables-save; as many lines as this make a
	// model of about 300 MB.
	Lines = 500_000
	// ServerLines is the most lines of ipvsadm: a virtual server, with its rule in the model, takes 800 bytes.
	ServerLines = 250_000
)

// Limits of JSON.
const (
	// JSONDepth is the deepest nesting of JSON and YAML. A rule of nft -j has 20.
	JSONDepth = 200
	// JSONList is the longest list or object, in elements: the rules of nft -j, the elements of a set.
	JSONList = 500_000
	// Routes is the most routes, addresses or links of a node; each may be a table of its own, of 1,400 bytes.
	Routes = 200_000
	// Policies is the most rules of ip rule, and the most targets of connections or connections of one.
	Policies = 20_000
	// JSONValues is the most values, names of members not counted, in a file: a rule of nft -j has 50.
	JSONValues = 12_000_000
	// JSONObjects is the most objects ({…}) in a file of the cluster: an EndpointSlice has eight for each endpoint.
	JSONObjects = 2_000_000
)

// Limits of the objects of a cluster.
const (
	// Objects is the most objects of one kind. Kubernetes is tested with 150,000 pods and 10,000 Services
	// (https://kubernetes.io/docs/setup/best-practices/cluster-large).
	Objects = 200_000
	// Object is the largest object, as JSON, in bytes: etcd refuses requests above 1.5 MB (--max-request-bytes).
	Object = 3 << 20
	// APIResponses is the most bytes of responses of an API server that are in memory at once: pages of lists, and
	// objects.
	APIResponses = 64 << 20
	// APIPage is how many objects are requested at once, fewer where they are too large, and APIPages is in how many pages
	// all of a kind may come.
	APIPage  = 1000
	APIPages = 1000
	// APIItems is the most objects of a page, and APIFields the most fields of all of them: empty ones take a thousand and
	// a hundred bytes in memory.
	APIItems  = 20_000
	APIFields = 1_000_000
	// APIObjects is the most bytes that all objects that are listed may take in memory, about, but for pods, and APIPods
	// the same of these.
	APIObjects = 128 << 20
	APIPods    = 256 << 20
	// AgentObjects is the most bytes of objects that an agent holds, about: a pass needs the rest of its 320 MB for its
	// paths. 10,000 Services with 20 endpoints each are 90 MB.
	AgentObjects = 96 << 20
)

// Limits of what is judged.
const (
	// ServiceWork is how much judging one Service may take, counted before anything of it is expanded: its paths (ports,
	// addresses, clients), each as 30 and its endpoints. A Service with two ports, a cluster IP, a NodePort, an address of
	// a load balancer and 5,000 endpoints is 80,000.
	ServiceWork = 1_000_000
	// Work is how much all Services of a cluster may take. 10,000 Services with a NodePort and 20 endpoints each are
	// 2,700,000.
	Work = 3_000_000
	// Endpoints is the most bytes that the endpoints of all Services' ports may take while they are judged, about: those
	// that are expected, and those of reports. 10,000 Services with 20 endpoints each are 60 MB.
	Endpoints = 96 << 20
	// Selecting is how many labels and ports of pods are compared for the selectors of a namespace's Services, where
	// these have named ports. 5,000 Services that select ten pods each take 250,000.
	Selecting = 5_000_000
	// Claimants is with how many other Services at its address and port a path is compared.
	Claimants = 16
)

// Limits of archives and directories.
const (
	// Members is the most files, directories and other members of a snapshot: a node has 30.
	Members = 200_000
	// Nodes is the most nodes of a snapshot. Kubernetes is tested with 5,000.
	Nodes = 10_000
	// NodeName is the longest name of a node, in bytes (a DNS subdomain, RFC 1123).
	NodeName = 253
	// Ratio is the highest compression of gzip beyond the first RatioFree bytes: text of nodes has 6 to 25, zeros have
	// 1,000.
	Ratio = 150
	// RatioFree is how many bytes may be compressed at any ratio.
	RatioFree = 64 << 20
	// Passes is how many times an archive is read at most: once for its list, and once more where the members of each
	// node stand together.
	Passes = 16
	// Kept is how many bytes of an archive stay in memory while nodes are judged; of a larger one each node is read when
	// it is needed.
	Kept = 64 << 20
	// Depth is the deepest directory of a snapshot.
	Depth = 32
)

// Limits of a helper's answers, and of the plugin's requests to a helper.
const (
	// AnswerFiles is the most files of an answer.
	AnswerFiles = 1000
	// Progress is the most progress messages of an answer; a helper sends some tens.
	Progress = 10_000
	// Compressed is the most bytes of an answer as they are transferred: Node bytes of text compressed by four at least.
	Compressed = 64 << 20
	// Held is how many bytes of a node's files, compressed, wait in memory to be judged. Of larger answers there are at
	// most Answers at once.
	Held = 8 << 20
	// Answers is how many nodes are in memory as rules at once, and how many large answers.
	Answers = 2
	// Call is the longest time for reading a node, where --timeout is not longer. Progress and bytes do not extend it.
	Call = 2 * time.Minute
	// Change is that of a request that makes connections or changes the node, which may have to wait for a lock.
	Change = 5 * time.Minute
	// Judge is the longest time for judging one node; 5,000 Services take a second.
	Judge = 2 * time.Minute
	// Request is the largest request, in bytes: a plan of 1,000 ports is 2 MB. RequestList and RequestValues are the
	// most elements of a list and the most values in it.
	Request = 16 << 20
	// RequestList and RequestValues: see Request.
	RequestList = 100_000
	// RequestValues: see Request.
	RequestValues = 1_000_000
	// ProbeTargets is the most targets of one request for connections, ProbeConnections the most connections to each.
	ProbeTargets = 500
	// ProbeConnections: see ProbeTargets.
	ProbeConnections = 200
)
