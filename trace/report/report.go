// SPDX-License-Identifier: Apache-2.0

// Package report is the contract of what every command prints: its types, and what verdicts come to together.
package report

import (
	"math"
	"net/netip"
)

// APIVersion is the version of the report contract that this package writes.
const APIVersion = "svcproxy.dev/v1alpha1"

// The kinds of report.
const (
	KindTrace  = "TraceReport"
	KindVerify = "VerifyReport"
	KindMode   = "ModeReport"
)

// Verdict is what a path, a node or a whole report comes to.
type Verdict string

// The verdicts. The worst that was seen counts, in the order Mismatch, Unknown, Warning, ByDesign, Match.
const (
	Match    Verdict = "Match"    // the kernel does what kube-proxy should have made it do
	Mismatch Verdict = "Mismatch" // it does not
	ByDesign Verdict = "ByDesign" // traffic is refused, and the API says that it has to be
	Warning  Verdict = "Warning"  // it does, but something is wrong that will matter
	Unknown  Verdict = "Unknown"  // something could not be read or judged: no claim
)

// Severity of a finding.
type Severity string

// The severities. An error makes a Mismatch, a warning a Warning; info changes no verdict.
const (
	Error Severity = "error"
	Warn  Severity = "warning"
	Info  Severity = "info"
)

// Report is the one object that every command prints (docs/report.md). Lists are ordered and stable.
type Report struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Verdict    Verdict      `json:"verdict"`
	Source     *Source      `json:"source,omitempty"`  // what was read, when, and by which command
	Service    *ServiceInfo `json:"service,omitempty"` // TraceReport only
	Nodes      []NodeReport `json:"nodes"`
	Patterns   []Pattern    `json:"patterns,omitempty"` // of several nodes: what those with a finding share
	Summary    Summary      `json:"summary"`
}

// Source is where a report comes from.
type Source struct {
	Tool     string   `json:"tool"`               // with its version: kubectl-svcproxy v1.2.3
	Command  string   `json:"command,omitempty"`  // the command line, without credentials
	ReadAt   string   `json:"readAt,omitempty"`   // when the nodes of a cluster were read, RFC 3339
	Context  string   `json:"context,omitempty"`  // of the kubeconfig
	Cluster  string   `json:"cluster,omitempty"`  // of the kubeconfig
	Snapshot string   `json:"snapshot,omitempty"` // the directory or archive that was read in place of a cluster
	MadeAt   string   `json:"madeAt,omitempty"`   // when the snapshot was made, RFC 3339; absent where it does not say
	MadeBy   string   `json:"madeBy,omitempty"`   // by which tool
	Nodes    []string `json:"nodes"`              // that were read, or could not be
}

// ServiceInfo is the API's side of the traced Service.
type ServiceInfo struct {
	Namespace  string        `json:"namespace"`
	Name       string        `json:"name"`
	Type       string        `json:"type,omitempty"`
	ClusterIPs []string      `json:"clusterIPs,omitempty"`
	Ports      []ServicePort `json:"ports,omitempty"`
}

// ServicePort is one port of the Service, with how many endpoints are usable of all there are.
type ServicePort struct {
	Name       string `json:"name,omitempty"`
	Protocol   string `json:"protocol"`
	Port       int32  `json:"port"`
	TargetPort string `json:"targetPort,omitempty"`
	NodePort   int32  `json:"nodePort,omitempty"`
	Ready      int    `json:"ready"`
	Total      int    `json:"total"`
}

// NodeReport is everything found on one node.
type NodeReport struct {
	Node     string    `json:"node"`
	Verdict  Verdict   `json:"verdict"`
	Mode     *Mode     `json:"mode,omitempty"`
	Error    string    `json:"error,omitempty"` // why the node could not be inspected; then there are no paths
	Findings []Finding `json:"findings,omitempty"`
	Paths    []Path    `json:"paths,omitempty"`
	Summary  Summary   `json:"summary"` // of all paths, also of those that are not listed
	// Coverage is what the verdicts of the paths rest on; absent where no path was judged.
	Coverage *Coverage `json:"coverage,omitempty"`
	// Asks are Nodes that were not read, and of which the addresses of their interfaces would decide over paths.
	Asks []string `json:"asks,omitempty"`
}

// Coverage is how far the verdicts of a node's paths go. What is beyond the node is never judged: the network between
// nodes, and the nodes and pods of endpoints.
type Coverage struct {
	Judged    []string `json:"judged"`              // rules, routes, settings, …
	NotJudged []Gap    `json:"notJudged,omitempty"` // what a Match leaves open
}

// Gap is a part of a node that was not judged, or not all of it, since files are missing.
type Gap struct {
	Part   string   `json:"part"`
	Files  []string `json:"files"`            // that would tell
	Places []string `json:"places,omitempty"` // other nodes, and pods, that it is a part of; none: the node itself
}

// Mode is which proxy the node runs.
type Mode struct {
	Actual           string `json:"actual,omitempty"`     // iptables, nftables, ipvs; from the kernel
	Configured       string `json:"configured,omitempty"` // from kube-proxy's configuration
	Backend          string `json:"backend,omitempty"`    // nft, legacy, both
	KubeProxyVersion string `json:"kubeProxyVersion,omitempty"`
	// VouchedBy says by what the process that is asked as kube-proxy is known to be it: node, kubelet, api; absent where
	// there is none, or that was not collected.
	VouchedBy Voucher `json:"vouchedBy,omitempty"`
	LastSync  string  `json:"lastSync,omitempty"` // RFC 3339
	// ConfigSource is where kube-proxy's configuration was read: configz.json, …; unknown where it was not.
	ConfigSource string `json:"configSource,omitempty"`
	// Values are kube-proxy's version and configuration, as far as they decide what is programmed, and where each was
	// found.
	Values   []Value `json:"values,omitempty"`
	Reported string  `json:"reported,omitempty"` // what kube-proxy says of itself (/proxyMode)
	Health   string  `json:"health,omitempty"`   // healthy, draining, unhealthy, down
	// PendingChanges are changes of Services and endpoints that kube-proxy has seen and not written.
	PendingChanges *int `json:"pendingChanges,omitempty"`
	// SyncFailures are kube-proxy's failed writes since it started.
	SyncFailures *int `json:"syncFailures,omitempty"`
	// Families has the same of each IP family, by name, where kube-proxy tells them apart (since 1.33).
	Families   []FamilySync `json:"families,omitempty"`
	Leftovers  []string     `json:"leftovers,omitempty"`  // other modes of which the kernel holds live rules
	ReplacedBy string       `json:"replacedBy,omitempty"` // what serves Services in kube-proxy's place
}

// Voucher is what vouches for a process: more than its name.
type Voucher string

// The vouchers.
const (
	VouchedByNode    Voucher = "node"    // it is root's on the node, outside of pods
	VouchedByKubelet Voucher = "kubelet" // it is in a pod's control group, and can write rules; the API was not asked
	VouchedByAPI     Voucher = "api"     // it is in a pod which the API knows on the node as kube-proxy's
)

// FamilySync is the progress of the rules of one IP family.
type FamilySync struct {
	Family   string `json:"family"`             // IPv4, IPv6
	LastSync string `json:"lastSync,omitempty"` // RFC 3339
	// Waits: kube-proxy has seen a change of the family after its last write. It does not count them by family.
	Waits        bool `json:"waits,omitempty"`
	SyncFailures *int `json:"syncFailures,omitempty"`
}

// Value is one value of kube-proxy's.
type Value struct {
	Name  string `json:"name"`            // mode, version, detectLocalMode, masqueradeAll, …
	Value string `json:"value,omitempty"` // absent where it is not known
	// Source is where it was found: configz, file, flags, configMap, proxyMode, metrics, image, rules; or unknown.
	Source string `json:"source"`
	// Detail is the file that it was read from, what of the rules shows it, or what it may be.
	Detail string `json:"detail,omitempty"`
}

// Inferred tells whether a value is what the rules show of it (kubeproxy.FromRules), which may be less than what
// kube-proxy was told.
func (v *Value) Inferred() bool { return v.Source == "rules" }

// ObjectRef names a namespaced object.
type ObjectRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Path is one frontend seen from one origin, on one node.
type Path struct {
	Service  *ObjectRef `json:"service,omitempty"` // VerifyReport only
	Frontend Frontend   `json:"frontend"`
	Origin   Origin     `json:"origin"`
	Verdict  Verdict    `json:"verdict"`
	Expected Expected   `json:"expected"`
	Actual   Actual     `json:"actual"`
	Rows     []Row      `json:"rows,omitempty"` // expected against actual, endpoint by endpoint (Complete)
	Steps    []Step     `json:"steps,omitempty"`
	Routes   []Route    `json:"routes,omitempty"`
	Observed *Observed  `json:"observed,omitempty"` // what real connections showed (trace --live)
	Findings []Finding  `json:"findings,omitempty"`
	// Segments are the parts of the connection from one end to the other (trace --end-to-end): those that all endpoints
	// have in common, then those of each endpoint.
	Segments []Segment `json:"segments,omitempty"`
}

// Frontend is an address and port at which a Service is to be had.
type Frontend struct {
	Kind     string `json:"kind"` // ClusterIP, NodePort, ExternalIP, LoadBalancerIP
	Address  string `json:"address,omitempty"`
	Port     int32  `json:"port,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	PortName string `json:"portName,omitempty"`
}

// Origin is where the packet comes from.
type Origin struct {
	Kind    string `json:"kind"` // pod, node, external
	Address string `json:"address,omitempty"`
	Pod     string `json:"pod,omitempty"` // namespace/name
	// Sample says that nobody asked for this address: it stands for others of its kind, a pod for all pods of the node,
	// an address from outside for all clients there.
	Sample bool `json:"sample,omitempty"`
	// Pods are the pods of the node for which this path holds, where it does not hold for all of them: rules that are not
	// kube-proxy's tell them apart.
	Pods []string `json:"pods,omitempty"`
}

// Expected is what kube-proxy must have programmed.
type Expected struct {
	Action          string     `json:"action"` // DNAT, Proxy, Reject, Drop, None
	Endpoints       []Endpoint `json:"endpoints,omitempty"`
	Masquerade      string     `json:"masquerade,omitempty"` // Always, Never, Hairpin
	AffinitySeconds int32      `json:"affinitySeconds,omitempty"`
	Summary         string     `json:"summary,omitempty"` // in a word or two (Complete)
}

// Endpoint is one expected destination.
type Endpoint struct {
	Address string  `json:"address"`
	Port    int32   `json:"port"`
	Share   float64 `json:"share"`
	Pod     string  `json:"pod,omitempty"`
	Node    string  `json:"node,omitempty"`
}

// AddrPort returns the endpoint as the address and port that it is; false where it is none.
func (e *Endpoint) AddrPort() (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(e.Address)
	if err != nil || e.Port <= 0 || e.Port > math.MaxUint16 {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a, uint16(e.Port)), true
}

// Actual is what the rules that were read do.
type Actual struct {
	Outcomes []Outcome `json:"outcomes,omitempty"`
	// Sharing is by what IPVS distributes connections ("load", "client address"), where that comes to no fixed shares.
	Sharing   string      `json:"sharing,omitempty"`
	Uncertain []Uncertain `json:"uncertain,omitempty"`
	// Summary says it in a few words; of a Mismatch never those of Expected.Summary (Complete).
	Summary string `json:"summary,omitempty"`
}

// Outcome is one end that the packet can come to.
type Outcome struct {
	Action       string    `json:"action"` // DNAT, Reject, Drop, Accept, None
	Endpoint     *Endpoint `json:"endpoint,omitempty"`
	Share        float64   `json:"share"`
	Masquerade   bool      `json:"masquerade,omitempty"`
	MasqueradeBy RuleRef   `json:"masqueradeBy,omitzero"` // where it is not a rule of kube-proxy's
	// Listener is the process that the node itself has for it: "process kube-proxy (812)".
	Listener string `json:"listener,omitempty"`
	// Where is the rule or policy that ended the walk; empty for DNAT and Accept.
	Where RuleRef `json:"where,omitzero"`
}

// Uncertain is a rule that decides the outcome and that the snapshot does not let us judge.
type Uncertain struct {
	Where RuleRef `json:"where,omitzero"`
	Match string  `json:"match"`
	Why   string  `json:"why"`
}

// Observed is what became of real connections to the frontend.
type Observed struct {
	Probes    int                `json:"probes"`              // how many were tried
	Connected int                `json:"connected"`           // of UDP: answered
	RTT       float64            `json:"rtt,omitempty"`       // median time to connect, in milliseconds
	Endpoints []ObservedEndpoint `json:"endpoints,omitempty"` // where the kernel sent them, by its connection table
	// Scheduled is of how many connections IPVS's own connection table has the real server.
	Scheduled int     `json:"scheduled,omitempty"`
	Events    []Event `json:"events,omitempty"` // how those ended that were not accepted, or not answered
	// Answered is over how many connections some bytes came back for the payload that was sent (--payload).
	Answered int `json:"answered,omitempty"`
	// Lost is what the kernel says of the packets of traced connections that failed.
	Lost []Lost `json:"lost,omitempty"`
	// DropsError is why the kernel could not be asked for its reasons to discard packets.
	DropsError string `json:"dropsError,omitempty"`
	Error      string `json:"error,omitempty"` // why it could not be tried
	// Traced is how many more connections were made to have the kernel tell which rules they meet.
	Traced     int    `json:"traced,omitempty"`
	TraceError string `json:"traceError,omitempty"` // why it tells nothing of them, or no more
	// LegacyError is why it tells nothing of rules of iptables-legacy, on a node that has some.
	LegacyError string `json:"legacyError,omitempty"`
}

// ObservedEndpoint is where some of the connections were sent.
type ObservedEndpoint struct {
	Address   string  `json:"address"`
	Port      int32   `json:"port"`
	Count     int     `json:"count"`            // sent there
	Connected int     `json:"connected"`        // of these: accepted
	RTT       float64 `json:"rtt,omitempty"`    // median, in milliseconds
	Events    []Event `json:"events,omitempty"` // how the others of these ended
}

// Lost is a packet of traced connections that was lost on the node, as the kernel says it.
type Lost struct {
	Packet   string `json:"packet"`             // request or answer
	Endpoint string `json:"endpoint,omitempty"` // that the connection was sent to
	To       string `json:"to,omitempty"`       // the packet's destination at that moment
	// Where is the rule that dropped it, by the kernel's trace.
	Where RuleRef `json:"where,omitzero"`
	// Hook is the last hook that it came to the end of, and Next the one that it did not get through, where nothing else
	// is known.
	Hook string `json:"hook,omitempty"`
	Next string `json:"next,omitempty"`
	// Reason is the kernel's (enum skb_drop_reason), and Function is where it discarded the packet.
	Reason    string `json:"reason,omitempty"`
	Function  string `json:"function,omitempty"`
	Interface string `json:"interface,omitempty"`
	InPod     bool   `json:"inPod,omitempty"` // in the network namespace of a pod of the node
	Count     int    `json:"count"`           // of connections
}

// Step is one rule that the packet met and that did something.
type Step struct {
	Hook string `json:"hook"`
	RuleRef
	Text    string  `json:"text"`
	Verdict string  `json:"verdict"`
	Share   float64 `json:"share"`
	// Endpoints are those whose connections the step is for; absent where it is for those to all endpoints, and where
	// the step alone does not tell.
	Endpoints []string `json:"endpoints,omitempty"`
	// Status is Wrong or Suspect where a finding of severity error or warning points at the step's chain, Unknown where
	// a rule of that chain could not be judged (Complete).
	Status Status `json:"status,omitempty"`
	// Kernel is how many of the connections that the kernel traced (Observed.Traced) met the rule; absent where it
	// cannot tell: nothing was traced, it is a virtual server of IPVS, or a rule of iptables-legacy and
	// Observed.LegacyError says why.
	Kernel *int `json:"kernel,omitempty"`
}

// Route is a routing decision that the node takes for a packet between two of its steps.
type Route struct {
	Before string `json:"before"` // the hook that the packet comes to next
	Step   int    `json:"step"`   // how many of the path's steps come before it
	// To are the destinations, the first of them; Count is how many there are.
	To    []string `json:"to"`
	Count int      `json:"count"`
	Type  string   `json:"type"` // unicast, local, blackhole, unreachable, prohibit, broadcast, multicast, none
	Dev   string   `json:"dev,omitempty"`
	Via   string   `json:"via,omitempty"`
	// Rule is the routing rule that decided ("100: from 10.244.0.0/16 lookup 100"), "" for a default one; Entry is the
	// route with its table ("table 100: blackhole default"), "" for none.
	Rule  string  `json:"rule,omitempty"`
	Entry string  `json:"entry,omitempty"`
	Share float64 `json:"share"`
}

// Finding is one thing that is wrong, or worth knowing (docs/findings.md).
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject,omitempty"`
	// Endpoints are those that it is about ("10.244.1.5:8080"), all of them; Subject names some in one text.
	Endpoints []string `json:"endpoints,omitempty"`
	Expected  string   `json:"expected,omitempty"`
	Actual    string   `json:"actual,omitempty"`
	Message   string   `json:"message"`
	// Predicate is what Message says of the subject, where the subject and this are all of Message ("is in no
	// EndpointSlice"); else empty. Findings that differ by their subject alone have the same.
	Predicate string `json:"predicate,omitempty"`
	// Remedy says what to do, and Commands are those for it, in their order; each may be absent.
	Remedy   string     `json:"remedy,omitempty"`
	Commands []Command  `json:"commands,omitempty"`
	Evidence []Evidence `json:"evidence,omitempty"`
	Links    []string   `json:"links,omitempty"`
	Page     string     `json:"page,omitempty"` // the address of the page that explains the code (LinkPages)
	// Effect is what it means for connections, in a few words for a summary ("not masqueraded"); empty where the code
	// says it.
	Effect string `json:"-"`
	// Client is what a client sees of it.
	Client Client `json:"-"`
}

// Client is what a client sees of a finding.
type Client struct {
	// Words are said of connections, with their verb first: "hang: dropped". Sentence takes the place of all that is said
	// of connections.
	Words    Phrase
	Sentence string
	// Fails: the connections do not work. Otherwise they do, in another way than they should, or may.
	Fails bool
	// Itself: only a pod that is sent to itself sees it.
	Itself bool
}

// Phrase is what is said of several things, and of one of them.
type Phrase struct{ Several, One string }

// Summary counts paths by verdict.
type Summary struct {
	Nodes      int `json:"nodes,omitempty"` // of a whole report
	Paths      int `json:"paths"`
	Matched    int `json:"matched"`
	Mismatched int `json:"mismatched"`
	ByDesign   int `json:"byDesign"`
	Unknown    int `json:"unknown"`
	Warnings   int `json:"warnings"`
}
