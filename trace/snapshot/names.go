// SPDX-License-Identifier: Apache-2.0

package snapshot

// The names of the contract's files of one node (docs/snapshots.md). Those of files that the helper adds are declared
// with their format: ProcessesFile, JournalFile, ProbesFile, UnreadFile.
const (
	IPTablesFile        = "iptables-save.txt" // of the default backend of iptables-save
	IPTablesNFTFile     = "iptables-nft-save.txt"
	IPTablesLegacyFile  = "iptables-legacy-save.txt"
	IP6TablesFile       = "ip6tables-save.txt"
	IP6TablesNFTFile    = "ip6tables-nft-save.txt"
	IP6TablesLegacyFile = "ip6tables-legacy-save.txt"
	NFTFile             = "nft-ruleset.json" // the output of nft -j list ruleset
	NFTHooksFile        = "nft-hooks.txt"    // the output of nft list hooks
	IPVSFile            = "ipvsadm.txt"
	IPSetFile           = "ipset-save.txt"
	ConntrackFile       = "conntrack.txt"
	AddrFile            = "ip-addr.json"
	LinkFile            = "ip-link.json"
	RouteFile           = "ip-route.json"
	Route6File          = "ip6-route.json"
	RuleFile            = "ip-rule.json"
	Rule6File           = "ip6-rule.json"
	NeighbourFile       = "ip-neigh.json"   // of both families
	BridgeFDBFile       = "bridge-fdb.json" // which port, or which tunnel's end, a MAC is behind
	WireGuardFile       = "wireguard.txt"   // interfaces of WireGuard and their peers, without what is secret
	SysctlFile          = "sysctl.txt"
	ProgramsFile        = "programs.txt" // filters of tc, and programs of BPF, that packets meet
	XfrmFile            = "xfrm-policy.txt"
	EbtablesFile        = "ebtables.txt" // chains of the kernel's own ebtables that do something
	ListenFile          = "listen.txt"
	// StoppedFile lists, of the processes that hold sockets of ListenFile, those that are stopped, as ps -e -o
	// pid=,stat=,comm= does, and with F those whose control group is frozen. Others may be listed, too.
	StoppedFile     = "stopped.txt"
	TimeFile        = "time.txt" // when the rules were read, by the node's clock
	ConfigzFile     = "configz.json"
	MetricsFile     = "metrics.txt"
	ProxyModeFile   = "proxyMode.txt"
	HealthzFile     = "healthz.json"
	LivezFile       = "livez.json"
	VersionsFile    = "versions.txt"
	ProxyConfigFile = "kube-proxy-config.yaml"
	FlagsFile       = "kube-proxy-flags.txt" // kube-proxy's process and the flags that decide what is programmed
)

// NodeFiles are the names of all the contract's files of one node; other files are ignored.
var NodeFiles = []string{
	IPTablesFile, IPTablesNFTFile, IPTablesLegacyFile, IP6TablesFile, IP6TablesNFTFile, IP6TablesLegacyFile,
	NFTFile, IPVSFile, IPSetFile, ConntrackFile, AddrFile, LinkFile, RouteFile, Route6File, RuleFile, Rule6File,
	NeighbourFile, BridgeFDBFile, WireGuardFile, SysctlFile, ProgramsFile, XfrmFile, EbtablesFile, NFTHooksFile,
	ListenFile, StoppedFile, TimeFile,
	ConfigzFile, MetricsFile, ProxyModeFile, HealthzFile, LivezFile, VersionsFile, ProxyConfigFile, FlagsFile,
	ProcessesFile, JournalFile, ProbesFile, UnreadFile,
}
