// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Finding codes. Each has a section in docs/findings.md.
const (
	MissingEndpoint           = "MissingEndpoint"
	StaleEndpoint             = "StaleEndpoint"
	UnevenShare               = "UnevenShare"
	WrongMasquerade           = "WrongMasquerade"
	NotProgrammed             = "NotProgrammed"
	ServiceNotProgrammed      = "ServiceNotProgrammed"
	StaleService              = "StaleService"
	Shadowed                  = "Shadowed"
	DroppedCode               = "Dropped"
	RejectedCode              = "Rejected"
	RefusedWithEndpoints      = "RefusedWithEndpoints"
	AcceptedWithoutEndpoints  = "AcceptedWithoutEndpoints"
	AffinityMissing           = "AffinityMissing"
	AffinityUnexpected        = "AffinityUnexpected"
	AffinityTimeout           = "AffinityTimeout"
	SourceRangesMismatch      = "SourceRangesMismatch"
	TrafficPolicyMismatch     = "TrafficPolicyMismatch"
	FamilyMissing             = "FamilyMissing"
	SplitBackend              = "SplitBackend"
	DuplicateRules            = "DuplicateRules"
	BrokenRule                = "BrokenRule"
	OrphanChain               = "OrphanChain"
	NoRoute                   = "NoRoute"
	NotCollected              = "NotCollected"
	NodeLocalDNS              = "NodeLocalDNS"
	Programmed                = "Programmed"
	SharedFrontend            = "SharedFrontend"
	Changing                  = "Changing"
	ModeLeftover              = "ModeLeftover"
	ModeMismatch              = "ModeMismatch"
	NotSyncing                = "NotSyncing"
	RestoreFailing            = "RestoreFailing"
	KubeProxyDown             = "KubeProxyDown"
	KubeProxyUnhealthy        = "KubeProxyUnhealthy"
	NodeLeaving               = "NodeLeaving"
	Replaced                  = "Replaced"
	ProxyNotListening         = "ProxyNotListening"
	ConntrackStale            = "ConntrackStale"
	ForwardingOff             = "ForwardingOff"
	RouteLocalnetOff          = "RouteLocalnetOff"
	BridgeNetfilterOff        = "BridgeNetfilterOff"
	HairpinOff                = "HairpinOff"
	ReversePathFilter         = "ReversePathFilter"
	ConntrackFull             = "ConntrackFull"
	EndpointRefused           = "EndpointRefused"
	EndpointTimeout           = "EndpointTimeout"
	EndpointReachableDirectly = "EndpointReachableDirectly"
	WalkDisagrees             = "WalkDisagrees"
	ObservedSkew              = "ObservedSkew"
	RealServerWeightZero      = "RealServerWeightZero"
	RealServerTerminating     = "RealServerTerminating"
	VIPMissing                = "VIPMissing"
	VIPStale                  = "VIPStale"
	IPSetMissing              = "IPSetMissing"
	SchedulerMismatch         = "SchedulerMismatch"
	ForwardMethod             = "ForwardMethod"
	PersistenceMismatch       = "PersistenceMismatch"
	VirtualServerMissing      = "VirtualServerMissing"
	VirtualServerStale        = "VirtualServerStale"
	IPVSConntrackOff          = "IPVSConntrackOff"
	ConntrackInvalid          = "ConntrackInvalid"
	PersistenceStale          = "PersistenceStale"
)

// codeInfo is what is the same for every finding of a code. In a remedy, {restart} is the command that makes kube-proxy on the
// node write everything anew, {where} the place, {node} the node, {subject} the finding's subject.
type codeInfo struct {
	severity report.Severity
	remedy   string
	issues   []string // upstream, owner/repo#number
}

var codes = map[string]codeInfo{
	MissingEndpoint:           {report.Error, "{restart}", []string{"kubernetes/kubernetes#121362"}},
	StaleEndpoint:             {report.Error, "{restart}", []string{"kubernetes/kubernetes#28674", "kubernetes/kubernetes#67875"}},
	UnevenShare:               {report.Error, "{restart}", []string{"kubernetes/kubernetes#121362"}},
	WrongMasquerade:           {report.Error, "compare kube-proxy's clusterCIDR and detectLocalMode with the pod network, then: {restart}", []string{"kubernetes/kubernetes#36835", "kubernetes/kubernetes#36652"}},
	NotProgrammed:             {report.Error, "kube-proxy does not run on {node}, or something flushed its rules: look at its log, then: {restart}", []string{"kubernetes/kubernetes#35641", "kubernetes/kubernetes#121726"}},
	ServiceNotProgrammed:      {report.Error, "{restart}", []string{"kubernetes/kubernetes#28674", "kubernetes/kubernetes#112604"}},
	StaleService:              {report.Error, "{restart}", []string{"kubernetes/kubernetes#76338"}},
	Shadowed:                  {report.Error, "find who owns {where}; a hostPort, a port forward or another proxy takes this address and port first", []string{"kubernetes/kubernetes#66103", "containernetworking/plugins#269"}},
	DroppedCode:               {report.Error, "find who owns {where}, and let it pass Service traffic", []string{"kubernetes/kubernetes#39823", "projectcalico/calico#4927"}},
	RejectedCode:              {report.Error, "find who owns {where}, and let it pass Service traffic", []string{"firewalld/firewalld#767"}},
	RefusedWithEndpoints:      {report.Error, "{restart}", []string{"kubernetes/kubernetes#28674"}},
	AcceptedWithoutEndpoints:  {report.Error, "{restart}", []string{"kubernetes/kubernetes#67875"}},
	AffinityMissing:           {report.Error, "{restart}", nil},
	AffinityUnexpected:        {report.Error, "{restart}", nil},
	AffinityTimeout:           {report.Error, "{restart}", nil},
	SourceRangesMismatch:      {report.Error, "{restart}", []string{"kubernetes/kubernetes#110289"}},
	TrafficPolicyMismatch:     {report.Error, "{restart}", []string{"kubernetes/kubernetes#66354"}},
	FamilyMissing:             {report.Error, "look in kube-proxy's log for its IP families, and give its clusterCIDR one of each family", []string{"kubernetes/kubernetes#123837", "kubernetes/kubernetes#99127"}},
	SplitBackend:              {report.Warn, "find who writes the older set, flush it with that backend's own iptables, then: {restart}", []string{"kubernetes/kubernetes#71305", "kubernetes/kubernetes#109811"}},
	DuplicateRules:            {report.Warn, "kube-proxy's iptables and the node's do not agree: align their versions, then: {restart}", []string{"kubernetes/kubernetes#71305", "kubernetes/dns#568"}},
	BrokenRule:                {report.Warn, "read the node with the iptables that wrote the rules; if it stays, align the versions and: {restart}", []string{"kubernetes/kubernetes#114537", "kubernetes/kubernetes#112477"}},
	OrphanChain:               {report.Info, "nothing to do: no rule leads there, and kube-proxy removes such chains late", []string{"kubernetes/kubernetes#122604"}},
	NoRoute:                   {report.Error, "look at the CNI's routes on {node}: ip route get ADDRESS", nil},
	NotCollected:              {report.Info, "", nil},
	Programmed:                {report.Info, "nothing to do while it is meant to be so; to end it before its time: kubectl svcproxy cleanup --running --node {node}", nil},
	NodeLocalDNS:              {report.Info, "nothing to do: the node-local DNS cache answers on this address", []string{"kubernetes/dns#318"}},
	ModeLeftover:              {report.Warn, "run kube-proxy --cleanup on {node} with kube-proxy stopped, or reboot it; then: {restart}", []string{"kubernetes/kubernetes#102314", "kubernetes/kubernetes#96034"}},
	Changing:                  {report.Info, "look again in a minute; if it is still so, kube-proxy on {node} cannot keep up: see its log and its sync metrics", []string{"kubernetes/kubernetes#112604"}},
	ModeMismatch:              {report.Warn, "look at the first lines of kube-proxy's log on {node}: they say which mode it chose and why; then: {restart}", []string{"kubernetes/kubernetes#66454"}},
	NotSyncing:                {report.Warn, "look at kube-proxy's log on {node} (its watch of the API may hang, or the xtables lock may be taken), then: {restart}", []string{"kubernetes/kubernetes#76338", "kubernetes/kubernetes#107266", "kubernetes/kubernetes#128886"}},
	RestoreFailing:            {report.Warn, "read the error in kube-proxy's log on {node}: an address of the wrong family, a kernel module, another program's lock, or versions that do not fit", []string{"kubernetes/kubernetes#112604", "kubernetes/kubernetes#73157", "kubernetes/kubernetes#80462"}},
	KubeProxyDown:             {report.Warn, "find out why kube-proxy does not run on {node}: kubectl -n kube-system get pods -l k8s-app=kube-proxy --field-selector spec.nodeName={node}; where another program serves Services: kube-proxy --cleanup", []string{"kubernetes/kubernetes#35641", "kubernetes/kubernetes#119265"}},
	KubeProxyUnhealthy:        {report.Warn, "look at kube-proxy's log on {node} for what it cannot write, then: {restart}", []string{"kubernetes/kubernetes#112604"}},
	NodeLeaving:               {report.Info, "", nil},
	ConntrackStale:            {report.Error, "", []string{"kubernetes/kubernetes#125467", "kubernetes/kubernetes#139628", "kubernetes/kubernetes#48719"}},
	ConntrackFull:             {report.Error, "raise net.netfilter.nf_conntrack_max on {node} (kube-proxy sets it: conntrack.maxPerCore), and find who opens so many connections: conntrack -L", []string{"kubernetes/kubernetes#71261", "kubernetes/kubernetes#97377"}},
	ForwardingOff:             {report.Error, "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 on {node}, and find what turned it off (/etc/sysctl.d)", []string{"openshift/origin#9931", "weaveworks/weave#3280"}},
	RouteLocalnetOff:          {report.Error, "sysctl -w net.ipv4.conf.all.route_localnet=1 on {node}: kube-proxy sets it when it starts, unless iptables.localhostNodePorts is off", []string{"kubernetes/kubernetes#57942"}},
	BridgeNetfilterOff:        {report.Error, "modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1 on {node}, and make both last", []string{"kubernetes/kubernetes#87426", "cloudnativelabs/kube-router#151"}},
	HairpinOff:                {report.Error, "set the CNI's hairpinMode (or the kubelet's, for old ones); at once: bridge link set dev PORT hairpin on", []string{"kubernetes/kubernetes#13375", "kubernetes/kubernetes#45790"}},
	ReversePathFilter:         {report.Error, "make the way back the way there (a route or routing rule for {node}: ip rule, ip route); or, where it is meant to differ, let the filter be loose: sysctl -w net.ipv4.conf.IFACE.rp_filter=2 (the larger of all and IFACE counts)", []string{"cilium/cilium#13130", "cilium/cilium#19761", "cloudnativelabs/kube-router#812"}},
	EndpointRefused:           {report.Error, "look at the pod: is its process up, and does it listen at the Service's targetPort (and not at 127.0.0.1 alone)?", nil},
	EndpointTimeout:           {report.Error, "look at the pod, at NetworkPolicies that select it, and at the way between the nodes (routes, tunnels, the cloud's firewall)", nil},
	EndpointReachableDirectly: {report.Error, "compare both ways by -o wide; look for rules of others behind the translation, for rp_filter, and for answers that come back another way", nil},
	WalkDisagrees:             {report.Warn, "run it again; if it is still so, please report it with a dump: kubectl svcproxy dump --node {node} -o dump.tar.gz", nil},
	RealServerWeightZero:      {report.Error, "{restart}", []string{"kubernetes/kubernetes#92019", "kubernetes/kubernetes#108319"}},
	RealServerTerminating:     {report.Info, "", []string{"kubernetes/kubernetes#81775", "kubernetes/kubernetes#57841"}},
	VIPMissing:                {report.Error, "{restart} (at once: ip addr add {subject} dev kube-ipvs0 on {node}); find what takes addresses off interfaces it does not know (NetworkManager, systemd-networkd)", []string{"kubernetes/kubernetes#88012", "kubernetes/kubernetes#80738"}},
	VIPStale:                  {report.Error, "{restart}; when it is certain that nobody needs it: ip addr del {subject} dev kube-ipvs0 on {node}", []string{"kubernetes/kubernetes#78421", "kubernetes/kubernetes#88012"}},
	IPSetMissing:              {report.Error, "{restart}", []string{"kubernetes/kubernetes#134884", "kubernetes/kubernetes#67292", "kubernetes/kubernetes#68974"}},
	SchedulerMismatch:         {report.Error, "{restart}; where another program owns the virtual server, list its address in ipvs.excludeCIDRs", nil},
	ForwardMethod:             {report.Error, "find who changed the real server (kube-proxy writes Masq alone), then: {restart}", nil},
	PersistenceMismatch:       {report.Error, "{restart}", nil},
	VirtualServerMissing:      {report.Error, "{restart}", []string{"kubernetes/kubernetes#71071", "kubernetes/kubernetes#70493"}},
	VirtualServerStale:        {report.Error, "{restart}; where another program owns it, list its address in ipvs.excludeCIDRs", []string{"kubernetes/kubernetes#78421"}},
	PersistenceStale:          {report.Warn, "sysctl -w net.ipv4.vs.expire_quiescent_template=1 on {node} (kube-proxy sets it when it starts), and find what turned it off", []string{"kubernetes/kubernetes#71809", "kubernetes/kubernetes#81587", "kubernetes/kubernetes#89358"}},
	ConntrackInvalid:          {report.Warn, "watch which of the counters rises: conntrack -S on {node}; of invalid packets see why answers come another way, or set kube-proxy's conntrack.tcpBeLiberal", []string{"kubernetes/kubernetes#74839", "kubernetes/kubernetes#117924", "kubernetes/kubernetes#56903"}},
	IPVSConntrackOff:          {report.Error, "sysctl -w net.ipv4.vs.conntrack=1 on {node} (kube-proxy sets it when it starts), and find what turned it off", nil},
	ObservedSkew:              {report.Warn, "run it again with more --probes; if it is still so, please report it with a dump", nil},
	ProxyNotListening:         {report.Error, "look in kube-proxy's log on {node} for why it cannot listen (the port may be taken), then: {restart}", []string{"kubernetes/kubernetes#142183"}},
	Replaced:                  {report.Info, "ask the program that serves Services on {node}; if kube-proxy should, find out why it does not run there", []string{"kubernetes/kubernetes#119265"}},
	SharedFrontend:            {report.Warn, "give one of the Services another address or port: kube-proxy serves whichever it comes across first", nil},
}

// finding makes a finding of a code with what is the same for all of them.
func (n *node) finding(code, subject string, i issue) report.Finding {
	info := codes[code]
	f := report.Finding{
		Code: code, Severity: info.severity, Subject: subject, Endpoints: i.endpoints,
		Expected: i.expected, Actual: i.actual, Message: i.message, Evidence: i.evidence,
	}
	where := i.where.String()
	if where == "" {
		where = "the rule"
	}
	f.Remedy = strings.NewReplacer("{restart}", n.restart, "{where}", where, "{node}", n.name, "{subject}", subject).Replace(info.remedy)
	for _, l := range info.issues {
		repo, num, _ := strings.Cut(l, "#")
		f.Links = append(f.Links, "https://github.com/"+repo+"/issues/"+num)
	}
	return f
}
