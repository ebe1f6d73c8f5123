// SPDX-License-Identifier: Apache-2.0

package diagnose

import "strings"

// Finding codes. Each has a section in docs/findings.md.
const (
	MissingEndpoint          = "MissingEndpoint"
	StaleEndpoint            = "StaleEndpoint"
	UnevenShare              = "UnevenShare"
	WrongMasquerade          = "WrongMasquerade"
	NotProgrammed            = "NotProgrammed"
	ServiceNotProgrammed     = "ServiceNotProgrammed"
	StaleService             = "StaleService"
	Shadowed                 = "Shadowed"
	DroppedCode              = "Dropped"
	RejectedCode             = "Rejected"
	RefusedWithEndpoints     = "RefusedWithEndpoints"
	AcceptedWithoutEndpoints = "AcceptedWithoutEndpoints"
	AffinityMissing          = "AffinityMissing"
	AffinityUnexpected       = "AffinityUnexpected"
	AffinityTimeout          = "AffinityTimeout"
	SourceRangesMismatch     = "SourceRangesMismatch"
	TrafficPolicyMismatch    = "TrafficPolicyMismatch"
	FamilyMissing            = "FamilyMissing"
	SplitBackend             = "SplitBackend"
	DuplicateRules           = "DuplicateRules"
	BrokenRule               = "BrokenRule"
	OrphanChain              = "OrphanChain"
	NoRoute                  = "NoRoute"
	NotCollected             = "NotCollected"
	NodeLocalDNS             = "NodeLocalDNS"
	SharedFrontend           = "SharedFrontend"
	Changing                 = "Changing"
	ModeLeftover             = "ModeLeftover"
)

// codeInfo is what is the same for every finding of a code. In a remedy, {restart} is the command that makes kube-proxy on the
// node write everything anew, {where} the place, {node} the node.
type codeInfo struct {
	severity Severity
	remedy   string
	issues   []string // upstream, owner/repo#number
}

var codes = map[string]codeInfo{
	MissingEndpoint:          {Error, "{restart}", []string{"kubernetes/kubernetes#121362"}},
	StaleEndpoint:            {Error, "{restart}", []string{"kubernetes/kubernetes#28674", "kubernetes/kubernetes#67875"}},
	UnevenShare:              {Error, "{restart}", []string{"kubernetes/kubernetes#121362"}},
	WrongMasquerade:          {Error, "compare kube-proxy's clusterCIDR and detectLocalMode with the pod network, then: {restart}", []string{"kubernetes/kubernetes#36835", "kubernetes/kubernetes#36652"}},
	NotProgrammed:            {Error, "kube-proxy does not run on {node}, or something flushed its rules: look at its log, then: {restart}", []string{"kubernetes/kubernetes#35641", "kubernetes/kubernetes#121726"}},
	ServiceNotProgrammed:     {Error, "{restart}", []string{"kubernetes/kubernetes#28674", "kubernetes/kubernetes#112604"}},
	StaleService:             {Error, "{restart}", []string{"kubernetes/kubernetes#76338"}},
	Shadowed:                 {Error, "find who owns {where}; a hostPort, a port forward or another proxy takes this address and port first", []string{"kubernetes/kubernetes#66103", "containernetworking/plugins#269"}},
	DroppedCode:              {Error, "find who owns {where}, and let it pass Service traffic", []string{"kubernetes/kubernetes#39823", "projectcalico/calico#4927"}},
	RejectedCode:             {Error, "find who owns {where}, and let it pass Service traffic", []string{"firewalld/firewalld#767"}},
	RefusedWithEndpoints:     {Error, "{restart}", []string{"kubernetes/kubernetes#28674"}},
	AcceptedWithoutEndpoints: {Error, "{restart}", []string{"kubernetes/kubernetes#67875"}},
	AffinityMissing:          {Error, "{restart}", nil},
	AffinityUnexpected:       {Error, "{restart}", nil},
	AffinityTimeout:          {Error, "{restart}", nil},
	SourceRangesMismatch:     {Error, "{restart}", []string{"kubernetes/kubernetes#110289"}},
	TrafficPolicyMismatch:    {Error, "{restart}", []string{"kubernetes/kubernetes#66354"}},
	FamilyMissing:            {Error, "look in kube-proxy's log for its IP families, and give its clusterCIDR one of each family", []string{"kubernetes/kubernetes#123837", "kubernetes/kubernetes#99127"}},
	SplitBackend:             {Warn, "find who writes the older set, flush it with that backend's own iptables, then: {restart}", []string{"kubernetes/kubernetes#71305", "kubernetes/kubernetes#109811"}},
	DuplicateRules:           {Warn, "kube-proxy's iptables and the node's do not agree: align their versions, then: {restart}", []string{"kubernetes/kubernetes#71305", "kubernetes/dns#568"}},
	BrokenRule:               {Warn, "read the node with the iptables that wrote the rules; if it stays, align the versions and: {restart}", []string{"kubernetes/kubernetes#114537", "kubernetes/kubernetes#112477"}},
	OrphanChain:              {Info, "nothing to do: no rule leads there, and kube-proxy removes such chains late", []string{"kubernetes/kubernetes#122604"}},
	NoRoute:                  {Error, "look at the CNI's routes on {node}: ip route get ADDRESS", nil},
	NotCollected:             {Info, "", nil},
	NodeLocalDNS:             {Info, "nothing to do: the node-local DNS cache answers on this address", []string{"kubernetes/dns#318"}},
	ModeLeftover:             {Warn, "run kube-proxy --cleanup on {node} with kube-proxy stopped, or reboot it; then: {restart}", []string{"kubernetes/kubernetes#102314", "kubernetes/kubernetes#96034"}},
	Changing:                 {Info, "look again in a minute; if it is still so, kube-proxy on {node} cannot keep up: see its log and its sync metrics", []string{"kubernetes/kubernetes#112604"}},
	SharedFrontend:           {Warn, "give one of the Services another address or port: kube-proxy serves whichever it comes across first", nil},
}

// finding makes a finding of a code with what is the same for all of them.
func (n *node) finding(code, subject string, i issue) Finding {
	info := codes[code]
	f := Finding{
		Code: code, Severity: info.severity, Subject: subject,
		Expected: i.expected, Actual: i.actual, Message: i.message, Evidence: i.evidence,
	}
	where := i.where.String()
	if where == "" {
		where = "the rule"
	}
	f.Remedy = strings.NewReplacer("{restart}", n.restart, "{where}", where, "{node}", n.name).Replace(info.remedy)
	for _, l := range info.issues {
		repo, num, _ := strings.Cut(l, "#")
		f.Links = append(f.Links, "https://github.com/"+repo+"/issues/"+num)
	}
	return f
}
