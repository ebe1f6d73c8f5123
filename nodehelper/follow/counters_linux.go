// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/ctnetlink"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/sockets"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// counted are the counters of what the kernel does not take: files of /proc/net, and the names that they have there,
// with what stands before them.
var counted = map[string][]string{
	"snmp": {
		"Ip InHdrErrors", "Ip InAddrErrors", "Ip InUnknownProtos", "Ip InDiscards", "Ip OutDiscards", "Ip OutNoRoutes",
		"Ip ReasmFails", "Ip FragFails", "Icmp OutDestUnreachs", "Tcp InErrs", "Udp NoPorts", "Udp InErrors",
		"Udp RcvbufErrors", "Udp InCsumErrors",
	},
	"netstat": {
		"TcpExt ListenOverflows", "TcpExt ListenDrops", "TcpExt TCPBacklogDrop", "TcpExt TCPMinTTLDrop",
		"TcpExt TCPReqQFullDrop", "TcpExt TCPReqQFullDoCookies", "TcpExt IPReversePathFilter", "TcpExt LockDroppedIcmps",
		"TcpExt OutOfWindowIcmps", "TcpExt TCPMD5Failure", "TcpExt PAWSEstab", "IpExt InNoRoutes", "IpExt InCsumErrors",
		"IpExt InTruncatedPkts",
	},
	"snmp6": {
		"Ip6InHdrErrors", "Ip6InTooBigErrors", "Ip6InNoRoutes", "Ip6InAddrErrors", "Ip6InDiscards", "Ip6OutDiscards",
		"Ip6OutNoRoutes", "Ip6ReasmFails", "Ip6FragFails",
	},
}

// counters reads the counters of the network namespace that the thread is in. What is not there is left out.
func counters() map[string]uint64 {
	out := map[string]uint64{}
	for file, names := range counted {
		data, err := os.ReadFile("/proc/thread-self/net/" + file)
		if err != nil {
			continue
		}
		all := protocolCounters(string(data))
		for _, name := range names {
			if n, ok := all[name]; ok {
				out[name] = n
			}
		}
	}
	if data, err := os.ReadFile("/proc/thread-self/net/dev"); err == nil {
		maps.Copy(out, interfaceCounters(string(data)))
	}
	if tracking, err := ctnetlink.Counters(); err == nil {
		for _, name := range []string{"invalid", "insert_failed", "drop", "early_drop"} {
			if n, ok := tracking[name]; ok {
				out["conntrack "+name] = n
			}
		}
	}
	return out
}

// protocolCounters reads /proc/net/snmp and netstat, in which each line of names is followed by one of numbers
// (snmp_seq_show in net/ipv4/proc.c), and snmp6, in which each line is a name and a number.
func protocolCounters(text string) map[string]uint64 {
	out := map[string]uint64{}
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && !strings.HasSuffix(f[0], ":"):
			if n, err := strconv.ParseUint(f[1], 10, 64); err == nil {
				out[f[0]] = n
			}
		case len(f) == 0:
		case len(names) != len(f) || names[0] != f[0]:
			names = f
		default:
			for i := 1; i < len(f); i++ {
				if n, err := strconv.ParseUint(f[i], 10, 64); err == nil {
					out[strings.TrimSuffix(f[0], ":")+" "+names[i]] = n
				}
			}
			names = nil
		}
	}
	return out
}

// interfaceCounters reads /proc/net/dev (dev_seq_printf_stats in net/core/net-procfs.c).
func interfaceCounters(text string) map[string]uint64 {
	columns := map[int]string{2: "rx errors", 3: "rx dropped", 10: "tx errors", 11: "tx dropped", 14: "tx carrier errors"}
	out := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		f := strings.Fields(rest)
		if !ok {
			continue
		}
		for column, what := range columns {
			if column >= len(f) {
				continue
			}
			if n, err := strconv.ParseUint(f[column], 10, 64); err == nil {
				out[name+" "+what] = n
			}
		}
	}
	return out
}

// maxCounters bounds how many counters of a place are told.
const maxCounters = 24

// rises are the counters that are larger than before, by name.
func rises(before, after map[string]uint64) (out []snapshot.Counter) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, there := before[name]
		if n := after[name]; there && n > was && len(out) < maxCounters {
			out = append(out, snapshot.Counter{Name: name, By: n - was})
		}
	}
	return out
}

// after reads what is left of connections in the network namespace that the thread is in: which rules they came to,
// which counters have risen, what connection tracking has of them, and how many connections wait at the sockets of
// their servers.
func (p *place) after(flows []snapshot.Flow, out *snapshot.Followed) {
	p.addRules(flows, out)
	for _, c := range rises(p.counters, counters()) {
		c.Pod = p.pod
		out.Counters = append(out.Counters, c)
	}
	ports := map[uint16]bool{}
	for i := range flows {
		for _, s := range flows[i].Servers {
			ports[s.Port()] = true
		}
		if t, ok := trackedOf(&flows[i]); ok {
			t.Flow, t.Pod = i, p.pod
			out.Tracked = append(out.Tracked, t)
		}
	}
	list, err := sockets.Listening()
	if err != nil {
		if out.NoQueues == nil {
			out.NoQueues = map[string]string{}
		}
		out.NoQueues[p.pod] = err.Error()
	}
	for i := range list {
		if s := &list[i]; s.Protocol == "TCP" && s.Receive > 0 && ports[s.Local.Port()] {
			out.Queues = append(out.Queues, snapshot.Queue{Pod: p.pod, At: s.Local, Waiting: s.Receive})
		}
	}
}

// trackedOf is what connection tracking has of a flow, by any of its ends.
func trackedOf(f *snapshot.Flow) (t snapshot.TrackedFlow, ok bool) {
	proto := protocols[f.Protocol]
	for _, from := range f.Clients {
		for _, to := range f.Servers {
			if from.Addr().Is4() != to.Addr().Is4() {
				continue
			}
			if e := ctnetlink.Find(proto, from, to); e != nil {
				return snapshot.TrackedFlow{From: from, To: to, Answers: e.From, Unreplied: e.Unreplied}, true
			}
		}
	}
	return t, false
}
