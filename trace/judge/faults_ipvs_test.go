// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

const (
	setsFile = "ipset-save.txt"
	ipvsEp3  = "shop/ep3 ClusterIP 10.96.180.79:80/TCP from "
	// The virtual server of shop/ep3 and of shop/np's NodePort, and one real server of each.
	vsEp3  = "-t 10.96.180.79:80"
	rsEp3  = "-r 10.244.2.20:8080"
	vsNp   = "-t 10.77.0.11:30080"
	vsUDP  = "-u 10.96.186.109:53"
	vsLB   = "-t 203.0.113.10:80"
	vsLBR  = "-t 203.0.113.11:443"
	vsAff  = "-t 10.96.158.38:80"
	vs0    = "-t 10.96.245.171:80"
	vsExtL = "-t 198.51.100.22:80"
)

// unbind takes an address off kube-ipvs0.
func (w *capturedNode) unbind(address string) {
	w.t.Helper()
	text := w.files["ip-addr.json"]
	i := bytes.Index(text, []byte(`"`+address+`"`))
	if i < 0 {
		w.t.Fatalf("%s is on no interface", address)
	}
	from, to := bytes.LastIndexByte(text[:i], '{'), i+bytes.IndexByte(text[i:], '}')+1
	w.files["ip-addr.json"] = slices.Concat(text[:from], []byte("{}"), text[to:])
}

// sysctl changes a setting.
func (w *capturedNode) sysctl(name, value string) {
	w.t.Helper()
	w.edit("sysctl.txt", func(l string) []string {
		if strings.HasPrefix(l, name+"=") {
			return []string{name + "=" + value}
		}
		return []string{l}
	})
}

// keepsSource tells whether a path follows externalTrafficPolicy Local, in which ipvs mode translates nobody's source.
func keepsSource(path string) bool {
	return !strings.Contains(path, " ClusterIP ") &&
		(strings.Contains(path, "local") || strings.Contains(path, "kitchen-sink"))
}

// unmasqueraded: every path on which the source is translated, and every one on which a pod of the node may reach
// itself.
func unmasqueraded(code string, both bool) func(before map[string]string) []string {
	return every(func(path, was string) string {
		if was != string(report.Match) || isV6(path) && !both || keepsSource(path) {
			return ""
		}
		if strings.HasSuffix(path, "pod") {
			return "Mismatch: " + code + " ?"
		}
		return "Mismatch: " + code + " *"
	})
}

// ipvsFaults are put into the captured node in ipvs mode.
func ipvsFaults() []fault {
	const f = snapshot.IPVSFile
	return []fault{
		{
			name: "a real server is gone",
			do:   func(w *capturedNode) { w.drop(f, "-a "+vsEp3, rsEp3) },
			want: both(ipvsEp3, "Mismatch: MissingEndpoint 10.244.2.20:8080"),
		},
		{
			name: "all real servers are gone",
			do:   func(w *capturedNode) { w.drop(f, "-a "+vsEp3) },
			want: both(
				ipvsEp3,
				"Mismatch: MissingEndpoint 10.244.1.19:8080, 10.244.2.20:8080, 10.244.3.21:8080",
			),
		},
		{
			name: "a real server has weight 0",
			do:   func(w *capturedNode) { w.replace(f, "-w 1", "-w 0", "-a "+vsEp3, rsEp3) },
			want: both(ipvsEp3, "Mismatch: RealServerWeightZero 10.244.2.20:8080"),
		},
		{
			name: "all real servers have weight 0",
			do:   func(w *capturedNode) { w.replace(f, "-w 1", "-w 0", "-a "+vsEp3) },
			want: both(
				ipvsEp3,
				"Mismatch: RealServerWeightZero 10.244.1.19:8080; RealServerWeightZero 10.244.2.20:8080; RealServerWeightZero "+
					"10.244.3.21:8080",
			),
		},
		{
			name: "a real server has another weight under rr",
			do:   func(w *capturedNode) { w.replace(f, "-w 1", "-w 3", "-a "+vsEp3, rsEp3) },
		},
		{name: "a real server has another weight under wrr", do: func(w *capturedNode) {
			w.replace(f, "-w 1", "-w 3", "-a "+vsEp3, rsEp3)
			w.replace(f, "-s rr", "-s wrr", "-A "+vsEp3)
		}, want: both(ipvsEp3, "Mismatch: SchedulerMismatch TCP 10.96.180.79:80; UnevenShare")},
		{
			name: "a real server has another address",
			do:   func(w *capturedNode) { w.replace(f, "10.244.2.20", "10.244.2.99", "-a "+vsEp3) },
			want: both(ipvsEp3, "Mismatch: MissingEndpoint 10.244.2.20:8080; StaleEndpoint 10.244.2.99:8080"),
		},
		{
			name: "a real server has another port",
			do:   func(w *capturedNode) { w.replace(f, "10.244.2.20:8080", "10.244.2.20:8081", "-a "+vsEp3) },
			want: both(ipvsEp3, "Mismatch: MissingEndpoint 10.244.2.20:8080; StaleEndpoint 10.244.2.20:8081"),
		},
		{name: "a real server too many", do: func(w *capturedNode) {
			w.replace(f, vsEp3+" -s rr", vsEp3+" -s rr\n-a "+vsEp3+" -r 10.244.2.99:8080 -m -w 1")
		}, want: both(ipvsEp3, "Mismatch: StaleEndpoint 10.244.2.99:8080")},
		{name: "a real server that drains", do: func(w *capturedNode) {
			w.replace(f, vsEp3+" -s rr", vsEp3+" -s rr\n-a "+vsEp3+" -r 10.244.2.99:8080 -m -w 0")
		}, want: both(ipvsEp3, "Match: RealServerTerminating 10.244.2.99:8080")},
		{
			name: "direct routing",
			do:   func(w *capturedNode) { w.replace(f, " -m ", " -g ", "-a "+vsEp3, rsEp3) },
			want: both(ipvsEp3, "Mismatch: ForwardMethod 10.244.2.20:8080"),
		},
		{
			name: "a tunnel",
			do:   func(w *capturedNode) { w.replace(f, " -m ", " -i ", "-a "+vsEp3, rsEp3) },
			want: both(ipvsEp3, "Mismatch: ForwardMethod 10.244.2.20:8080"),
		},
		{
			name: "the virtual server is gone",
			do:   func(w *capturedNode) { w.drop(f, vsEp3) },
			want: both(ipvsEp3, "Mismatch: VirtualServerMissing TCP 10.96.180.79:80"),
		},
		{
			name: "the virtual server has another port",
			do:   func(w *capturedNode) { w.replace(f, "10.96.180.79:80", "10.96.180.79:8080", vsEp3) },
			want: []string{
				"node → VirtualServerStale TCP 10.96.180.79:8080",
				"shop/ep3 ClusterIP 10.96.180.79:80/TCP from node → Mismatch: VirtualServerMissing TCP 10.96.180.79:80",
				"shop/ep3 ClusterIP 10.96.180.79:80/TCP from pod → Mismatch: VirtualServerMissing TCP 10.96.180.79:80",
			},
		},
		{
			name: "the virtual server has another protocol",
			do:   func(w *capturedNode) { w.replace(f, vsEp3, "-u 10.96.180.79:80", vsEp3) },
			want: []string{
				"node → VirtualServerStale UDP 10.96.180.79:80",
				"shop/ep3 ClusterIP 10.96.180.79:80/TCP from node → Mismatch: VirtualServerMissing TCP 10.96.180.79:80",
				"shop/ep3 ClusterIP 10.96.180.79:80/TCP from pod → Mismatch: VirtualServerMissing TCP 10.96.180.79:80",
			},
		},
		{name: "the virtual server without endpoints is gone", do: func(w *capturedNode) { w.drop(f, vs0) }, want: []string{
			"shop/ep0-empty ClusterIP 10.96.245.171:80/TCP from node → Mismatch: VirtualServerMissing TCP 10.96.245.171:80",
			"shop/ep0-empty ClusterIP 10.96.245.171:80/TCP from pod → Mismatch: VirtualServerMissing TCP 10.96.245.171:80",
		}},
		{
			name: "no virtual server at all",
			do: func(w *capturedNode) { // as ipvsadm -Ln prints it: a file that is empty tells nothing
				w.files[f] = []byte("IP Virtual Server version 1.2.1 (size=4096)\n" +
					"Prot LocalAddress:Port Scheduler Flags\n" +
					"  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n")
			},
			all: func(before map[string]string) []string {
				return append(every(func(path, was string) string {
					return when(path != "node" && programmed(was) && !strings.Contains(was, "SourceRange"), NotProgrammed)
				})(before), "node → NotProgrammed IPv4; NotProgrammed IPv6")
			},
		},
		{
			name: "a virtual server too many",
			do:   func(w *capturedNode) { w.replace(f, vsEp3+" -s rr", vsEp3+" -s rr\n-A -t 10.96.9.9:80 -s rr") },
			want: []string{
				"node → VirtualServerStale TCP 10.96.9.9:80",
			},
		},
		{
			name: "someone else's virtual server, by firewall mark",
			do:   func(w *capturedNode) { w.replace(f, vsEp3+" -s rr", vsEp3+" -s rr\n-A -f 7 -s rr") },
		},
		{
			name: "another scheduler",
			do:   func(w *capturedNode) { w.replace(f, "-s rr", "-s lc", "-A "+vsEp3) },
			want: both(ipvsEp3, "Mismatch: SchedulerMismatch TCP 10.96.180.79:80"),
		},
		{name: "a scheduler that hashes, and a real server of weight 0", do: func(w *capturedNode) {
			w.replace(f, "-s rr", "-s sh", "-A "+vsEp3)
			w.replace(f, "-w 1", "-w 0", "-a "+vsEp3, rsEp3)
		}, want: both(ipvsEp3, "Mismatch: RealServerWeightZero 10.244.2.20:8080; SchedulerMismatch TCP 10.96.180.79:80")},
		{
			name: "persistence is missing",
			do:   func(w *capturedNode) { w.replace(f, " -p 600", "", "-A "+vsAff) },
			want: []string{
				"shop/affinity ClusterIP 10.96.158.38:80/TCP from node → Mismatch: PersistenceMismatch TCP 10.96.158.38:80",
				"shop/affinity ClusterIP 10.96.158.38:80/TCP from pod → Mismatch: PersistenceMismatch TCP 10.96.158.38:80",
			},
		},
		{
			name: "persistence for another time",
			do:   func(w *capturedNode) { w.replace(f, " -p 600", " -p 10800", "-A "+vsAff) },
			want: []string{
				"shop/affinity ClusterIP 10.96.158.38:80/TCP from node → Mismatch: PersistenceMismatch TCP 10.96.158.38:80",
				"shop/affinity ClusterIP 10.96.158.38:80/TCP from pod → Mismatch: PersistenceMismatch TCP 10.96.158.38:80",
			},
		},
		{name: "persistence to a real server that drains, for ever", do: func(w *capturedNode) {
			w.replace(f, vsAff+" -s rr -p 600", vsAff+" -s rr -p 600\n-a "+vsAff+" -r 10.244.2.99:8080 -m -w 0")
			w.sysctl("net/ipv4/vs/expire_quiescent_template", "0")
		}, want: both(
			"shop/affinity ClusterIP 10.96.158.38:80/TCP from ",
			"Warning: PersistenceStale 10.244.2.99:8080; RealServerTerminating 10.244.2.99:8080",
		)},
		{
			name: "persistence that nobody asks for",
			do:   func(w *capturedNode) { w.replace(f, "-s rr", "-s rr -p 10800", "-A "+vsEp3) },
			want: both(ipvsEp3, "Mismatch: PersistenceMismatch TCP 10.96.180.79:80"),
		},
		{name: "the cluster IP is not bound", do: func(w *capturedNode) { w.unbind("10.96.180.79") }, want: []string{
			"shop/ep3 ClusterIP 10.96.180.79:80/TCP from pod → Mismatch: VIPMissing 10.96.180.79",
		}},
		{
			name: "the cluster IP of an empty Service is not bound",
			do:   func(w *capturedNode) { w.unbind("10.96.245.171") },
			want: []string{
				"shop/ep0-empty ClusterIP 10.96.245.171:80/TCP from pod → Mismatch: VIPMissing 10.96.245.171",
			},
		},
		{name: "a load-balancer IP is not bound", do: func(w *capturedNode) { w.unbind("203.0.113.10") }, want: []string{
			"shop/lb LoadBalancerIP 203.0.113.10:80/TCP from external 192.0.2.77 → Mismatch: VIPMissing 203.0.113.10",
		}},
		{name: "an address too many", do: func(w *capturedNode) {
			w.files["ip-addr.json"] = bytes.Replace(w.files["ip-addr.json"], []byte("10.96.86.214"), []byte("10.96.86.215"), 1)
			w.files["ip-addr.json"] = bytes.Replace(w.files["ip-addr.json"], []byte("10.96.180.79"), []byte("10.96.7.7"), 1)
		}, want: []string{
			"node → VIPStale 10.96.7.7",
			"shop/ep3 ClusterIP 10.96.180.79:80/TCP from pod → Mismatch: VIPMissing 10.96.180.79",
		}},
		{
			name: "KUBE-CLUSTER-IP lacks an entry",
			do:   func(w *capturedNode) { w.drop(setsFile, "KUBE-CLUSTER-IP 10.96.180.79,tcp:80") },
			want: both(ipvsEp3, "Mismatch: IPSetMissing KUBE-CLUSTER-IP"),
		},
		{
			name: "KUBE-NODE-PORT-TCP lacks an entry",
			do:   func(w *capturedNode) { w.drop(setsFile, "KUBE-NODE-PORT-TCP 30080") },
			want: []string{
				"shop/np NodePort 10.77.0.11:30080/TCP from external → Mismatch: IPSetMissing KUBE-NODE-PORT-TCP",
				"shop/np NodePort 10.77.0.11:30080/TCP from node → Mismatch: IPSetMissing KUBE-NODE-PORT-TCP",
			},
		},
		{
			name: "KUBE-NODE-PORT-LOCAL-TCP lacks an entry",
			do:   func(w *capturedNode) { w.drop(setsFile, "KUBE-NODE-PORT-LOCAL-TCP 30082") },
			want: []string{
				"shop/np-etp-local NodePort 10.77.0.11:30082/TCP from external → Mismatch: IPSetMissing KUBE-NODE-PORT-LOCAL-TCP",
				"shop/np-etp-local NodePort 10.77.0.11:30082/TCP from node → Mismatch: IPSetMissing KUBE-NODE-PORT-LOCAL-TCP",
			},
		},
		{
			name: "KUBE-LOAD-BALANCER lacks an entry",
			do:   func(w *capturedNode) { w.drop(setsFile, "KUBE-LOAD-BALANCER 203.0.113.10,tcp:80") },
			want: []string{
				"shop/lb LoadBalancerIP 203.0.113.10:80/TCP from external 192.0.2.77 → Mismatch: IPSetMissing KUBE-LOAD-BALANCER",
				"shop/lb LoadBalancerIP 203.0.113.10:80/TCP from node → Mismatch: IPSetMissing KUBE-LOAD-BALANCER",
			},
		},
		{
			name: "KUBE-LOAD-BALANCER-FW lacks an entry",
			do:   func(w *capturedNode) { w.drop(setsFile, "KUBE-LOAD-BALANCER-FW 203.0.113.11,tcp:443") },
			want: []string{
				"shop/lb-ranges LoadBalancerIP 203.0.113.11:443/TCP from external 192.0.2.77 → Mismatch: IPSetMissing " +
					"KUBE-LOAD-BALANCER-FW",
			},
		},
		{
			name: "kube-proxy before 1.34 keeps everybody out where all addresses are allowed",
			do: func(w *capturedNode) {
				w.addTable(setsFile, "add KUBE-LOAD-BALANCER-FW 203.0.113.30,tcp:80\n"+
					"add KUBE-LOAD-BALANCER-FW 203.0.113.30,udp:81\n")
			},
			want: []string{
				"shop/kitchen-sink LoadBalancerIP 203.0.113.30:80/TCP from external 192.0.2.77 → Mismatch: IPSetMissing " +
					"KUBE-LOAD-BALANCER-SOURCE-CIDR",
				"shop/kitchen-sink LoadBalancerIP 203.0.113.30:81/UDP from external 192.0.2.77 → Mismatch: IPSetMissing " +
					"KUBE-LOAD-BALANCER-SOURCE-CIDR",
			},
		},
		{name: "KUBE-LOAD-BALANCER-SOURCE-CIDR lacks entries", do: func(w *capturedNode) {
			w.drop(setsFile, "KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.11,tcp:443,198.51.100.0/24")
		}, want: []string{
			"shop/lb-ranges LoadBalancerIP 203.0.113.11:443/TCP from external 198.51.100.0 → Mismatch: IPSetMissing " +
				"KUBE-LOAD-BALANCER-SOURCE-CIDR",
		}},
		{
			name: "KUBE-EXTERNAL-IP lacks an entry",
			do:   func(w *capturedNode) { w.drop(setsFile, "KUBE-EXTERNAL-IP 198.51.100.20,tcp:80") },
			want: []string{
				"shop/extip ExternalIP 198.51.100.20:80/TCP from external → Mismatch: IPSetMissing KUBE-EXTERNAL-IP",
				"shop/extip ExternalIP 198.51.100.20:80/TCP from node → Mismatch: IPSetMissing KUBE-EXTERNAL-IP",
			},
		},
		{
			name: "KUBE-LOOP-BACK lacks an entry",
			do:   func(w *capturedNode) { w.drop(setsFile, "KUBE-LOOP-BACK 10.244.1.19,tcp:8080,10.244.1.19") },
			want: []string{
				"shop/ep3 ClusterIP 10.96.180.79:80/TCP from pod → Mismatch: IPSetMissing KUBE-LOOP-BACK",
			},
		},
		{
			name: "OUTPUT does not lead to KUBE-SERVICES",
			do:   func(w *capturedNode) { w.drop(v4, "-A OUTPUT", "KUBE-SERVICES") },
			all: every(func(path, was string) string {
				return when(
					was == string(report.Match) && strings.HasSuffix(path, "from node") && !isV6(path) && !keepsSource(path),
					NotProgrammed+" *",
				)
			}),
		},
		{
			name: "POSTROUTING does not lead to KUBE-POSTROUTING",
			do:   func(w *capturedNode) { w.drop(v4, "-A POSTROUTING", "KUBE-POSTROUTING") },
			all:  unmasqueraded(WrongMasquerade, false),
		},
		{
			name: "IPVS without connection tracking",
			do:   func(w *capturedNode) { w.sysctl("net/ipv4/vs/conntrack", "0") },
			all: func(before map[string]string) []string {
				// Their sources are not translated, and answers without a connection meet the rules for new ones: of TCP those
				// behind the first, which is invalid.
				return append(
					unmasqueraded(IPVSConntrackOff, true)(before),
					"shop/extip-local ExternalIP 198.51.100.22:80/TCP from node → Mismatch: ConnectionCut 10.244.1.54:8080",
					"shop/kitchen-sink ExternalIP 198.51.100.30:80/TCP from node → Mismatch: ConnectionCut 10.244.1.114:8080, "+
						"10.244.1.115:8080",
					"shop/kitchen-sink LoadBalancerIP 203.0.113.30:80/TCP from node → Mismatch: ConnectionCut "+
						"10.244.1.114:8080, 10.244.1.115:8080",
					"shop/lb-etp-local LoadBalancerIP 203.0.113.15:80/TCP from node → Mismatch: ConnectionCut "+
						"10.244.1.47:8080, 10.244.1.49:8080",
					"shop/kitchen-sink ExternalIP 198.51.100.30:81/UDP from node → Mismatch: AnswerDropped 10.244.1.114:8081, "+
						"10.244.1.115:8081",
					"shop/kitchen-sink LoadBalancerIP 203.0.113.30:81/UDP from node → Mismatch: AnswerDropped "+
						"10.244.1.114:8081, 10.244.1.115:8081",
				)
			},
		},
		{
			name: "INPUT drops", codes: true,
			do: func(w *capturedNode) { w.policy(v4, "filter", "INPUT") },
			all: func(before map[string]string) []string {
				return append(every(func(path, was string) string {
					if strings.HasSuffix(path, "from node") && !isV6(path) && was == string(report.Match) &&
						!strings.Contains(path, "shop/hostnet Cl") {
						// Answers come in by INPUT, too, and none of the ports that the rules accept is one of the node's own sockets.
						return "Mismatch: AnswerDropped"
					}
					in := path != "node" && !strings.HasSuffix(path, "from node") && !isV6(path)
					return when(in && programmed(was) && !strings.Contains(was, "SourceRange"), Dropped)
				})(before), "shop/hostnet ClusterIP 10.96.36.27:9100/TCP from node → Mismatch: AnswerDropped 10.77.0.12:9100, "+
					"10.77.0.13:9100; Dropped 10.77.0.11:9100")
			},
		},
		{
			name: "a rule drops the endpoint's packets on their way out",
			do:   func(w *capturedNode) { w.first(v4, "filter", "OUTPUT", "-d 10.244.2.20/32 -j DROP") },
			want: both(ipvsEp3, "Mismatch: Dropped 10.244.2.20:8080"),
		},
		{name: "a foreign DNAT", do: func(w *capturedNode) {
			w.first(v4, "nat", "PREROUTING", "-d 10.96.180.79/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.9.9.9:80")
		}, want: []string{
			"shop/ep3 ClusterIP 10.96.180.79:80/TCP from pod → Mismatch: Shadowed",
		}},
		{name: "an endpoint has become unready", do: func(w *capturedNode) {
			no := false
			for i := range w.slice("shop/ep3").Endpoints {
				if e := &w.slice("shop/ep3").Endpoints[i]; e.Addresses[0] == "10.244.2.20" {
					e.Conditions.Ready, e.Conditions.Serving = &no, &no
				}
			}
		}, want: both(ipvsEp3, "Mismatch: StaleEndpoint 10.244.2.20:8080")},
		{
			name: "a UDP Service's real server is gone",
			do:   func(w *capturedNode) { w.drop(f, "-a "+vsUDP, "10.244.2.68") },
			want: []string{
				"shop/udp ClusterIP 10.96.186.109:53/UDP from node → Mismatch: MissingEndpoint 10.244.2.68:5353",
				"shop/udp ClusterIP 10.96.186.109:53/UDP from pod → Mismatch: MissingEndpoint 10.244.2.68:5353",
			},
		},
		{name: "a NodePort's virtual server is gone", do: func(w *capturedNode) { w.drop(f, vsNp) }, want: []string{
			"shop/np NodePort 10.77.0.11:30080/TCP from external → Mismatch: VirtualServerMissing TCP 10.77.0.11:30080",
			"shop/np NodePort 10.77.0.11:30080/TCP from node → Mismatch: VirtualServerMissing TCP 10.77.0.11:30080",
		}},
		{name: "a load balancer's virtual server is gone", do: func(w *capturedNode) { w.drop(f, vsLB) }, want: []string{
			"shop/lb LoadBalancerIP 203.0.113.10:80/TCP from external 192.0.2.77 → Mismatch: VirtualServerMissing TCP " +
				"203.0.113.10:80",
			"shop/lb LoadBalancerIP 203.0.113.10:80/TCP from node → Mismatch: VirtualServerMissing TCP 203.0.113.10:80",
		}},
		{
			name: "an external IP's real server has weight 0",
			do:   func(w *capturedNode) { w.replace(f, "-w 1", "-w 0", "-a "+vsExtL) },
			want: []string{
				"shop/extip-local ExternalIP 198.51.100.22:80/TCP from external → Mismatch: RealServerWeightZero 10.244.1.54:8080",
				"shop/extip-local ExternalIP 198.51.100.22:80/TCP from node → Mismatch: RealServerWeightZero 10.244.1.54:8080",
			},
		},
		{name: "rules of iptables mode are still live", do: func(w *capturedNode) {
			w.first(v4, "filter", "FORWARD", "-j KUBE-SERVICES")
			w.replace(v4, ":KUBE-FORWARD", ":KUBE-SERVICES - [0:0]\n:KUBE-FORWARD", ":KUBE-FORWARD")
			w.last(v4, "filter", "-A KUBE-SERVICES -d 10.96.245.171/32 -p tcp -m tcp --dport 80 -j REJECT")
		}, want: []string{
			"node → ModeLeftover table nat",
		}},
	}
}

func TestIPVSFaults(t *testing.T) {
	putIn(t, "ipvs", ipvsFaults(), 45)
}
