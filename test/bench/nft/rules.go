// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
)

// writeRules writes what kube-proxy in nftables mode has for so many Services of so many endpoints, in the form that
// nft reads. Each is a ClusterIP Service. Of a new kube-proxy, one map in a rule has a Service's endpoints, but for
// every hundredth, which has session affinity; of an old one, as of those with affinity, each endpoint has a chain of
// its own (pkg/proxy/nftables/proxier.go of Kubernetes 1.37 and 1.33; testdata/snapshots/nftables is a real one).
func writeRules(to io.Writer, services, endpoints int, old bool) error {
	w := bufio.NewWriter(to)
	fmt.Fprint(w, "table ip kube-proxy {\n\tcomment \"rules for kube-proxy\"\n")
	list(w, "set cluster-ips { type ipv4_addr; comment \"Active ClusterIPs\";", services, clusterIP)
	list(w, "set nodeport-ips { type ipv4_addr;", 1, func(int) string { return "10.77.0.11" })
	hairpin := func(i int) string { return podIP(i*endpoints) + " . " + podIP(i*endpoints) + " . tcp . 8080" }
	list(w, "set hairpin-connections { type ipv4_addr . ipv4_addr . inet_proto . inet_service;", services, hairpin)
	fmt.Fprint(w, "\tmap no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }\n"+
		"\tmap no-endpoint-nodeports { type inet_proto . inet_service : verdict; }\n"+
		"\tmap firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict; }\n"+
		"\tmap service-nodeports { type inet_proto . inet_service : verdict; }\n")
	fmt.Fprint(w, "\tchain mark-for-masquerade { meta mark set mark or 0x4000; }\n")
	for i := range services {
		if old {
			writeOldService(w, i, endpoints)
			continue
		}
		writeService(w, i, endpoints)
	}
	list(w, "map service-ips { type ipv4_addr . inet_proto . inet_service : verdict;", services, func(i int) string {
		return clusterIP(i) + " . tcp . 80 : goto " + chain("service", i)
	})
	fmt.Fprint(w, baseChains, "}\n")
	return w.Flush()
}

// everyAffinity is how many Services there are for each with session affinity.
const everyAffinity = 100

func writeService(w io.Writer, i, endpoints int) {
	if i%everyAffinity == 0 {
		for e := range endpoints {
			name := fmt.Sprintf("%s__%s/8080", chain("", i)[1:], podIP(i*endpoints+e))
			fmt.Fprintf(w, "\tset affinity-%s { type ipv4_addr; size 65535; flags dynamic,timeout; timeout 3h; }\n", name)
			fmt.Fprintf(w, "\tchain endpoint-%s {\n\t\tupdate @affinity-%s { ip saddr }\n"+
				"\t\tmeta l4proto tcp dnat to %s:8080\n\t}\n", name, name, podIP(i*endpoints+e))
		}
		fmt.Fprintf(w, "\tchain %s {\n", chain("service", i))
		for e := range endpoints {
			name := fmt.Sprintf("%s__%s/8080", chain("", i)[1:], podIP(i*endpoints+e))
			fmt.Fprintf(w, "\t\tip saddr @affinity-%s goto endpoint-%s\n", name, name)
		}
		fmt.Fprintf(w, "\t\tnumgen random mod %d vmap {", endpoints)
		for e := range endpoints {
			fmt.Fprintf(w, " %d : goto endpoint-%s__%s/8080,", e, chain("", i)[1:], podIP(i*endpoints+e))
		}
		fmt.Fprint(w, " }\n\t}\n")
		return
	}
	fmt.Fprintf(w, "\tchain %s {\n", chain("service", i))
	fmt.Fprintf(w, "\t\tmeta l4proto tcp dnat ip addr . port to numgen random mod %d map {", endpoints)
	for e := range endpoints {
		fmt.Fprintf(w, " %d : %s . 8080,", e, podIP(i*endpoints+e))
	}
	fmt.Fprint(w, " }\n\t}\n")
}

func writeOldService(w io.Writer, i, endpoints int) {
	for e := range endpoints {
		ip := podIP(i*endpoints + e)
		fmt.Fprintf(w, "\tchain endpoint-%s__%s/8080 {\n\t\tip saddr %s jump mark-for-masquerade\n"+
			"\t\tmeta l4proto tcp dnat to %s:8080\n\t}\n", chain("", i)[1:], ip, ip, ip)
	}
	fmt.Fprintf(w, "\tchain %s {\n\t\tip daddr %s tcp dport 80 ip saddr != 10.244.0.0/16 jump mark-for-masquerade\n",
		chain("service", i), clusterIP(i))
	fmt.Fprintf(w, "\t\tnumgen random mod %d vmap {", endpoints)
	for e := range endpoints {
		fmt.Fprintf(w, " %d : goto endpoint-%s__%s/8080,", e, chain("", i)[1:], podIP(i*endpoints+e))
	}
	fmt.Fprint(w, " }\n\t}\n")
}

func list(w io.Writer, begin string, n int, element func(i int) string) {
	fmt.Fprintf(w, "\t%s elements = {\n", begin)
	for i := range n {
		fmt.Fprintf(w, "\t\t%s,\n", element(i))
	}
	fmt.Fprint(w, "\t}\n\t}\n")
}

func chain(kind string, i int) string {
	return fmt.Sprintf("%s-%08X-%s/tcp/http", kind, i*2654435761%(1<<32), serviceName(i))
}

func serviceName(i int) string { return fmt.Sprintf("namespace-%d/service-%d", i%50, i) }

func clusterIP(i int) string { return fmt.Sprintf("10.96.%d.%d", i/250+1, i%250+1) }
func podIP(i int) string     { return fmt.Sprintf("10.%d.%d.%d", 128+i/62500, i/250%250, i%250+1) }

const baseChains = `	chain services {
		ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta mark set mark or 0x4000 ` +
	`comment "masquerade clusterIP traffic from outside cluster"
		ip daddr . meta l4proto . th dport vmap @service-ips
		ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
	}
	chain masquerading {
		meta mark & 0x4000 != 0 meta mark set meta mark ^ 0x4000 masquerade fully-random
		ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
	}
	chain cluster-ips-check {
		ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
		ip daddr 10.96.0.0/16 drop comment "Drop traffic to unallocated ClusterIPs"
	}
	chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
	chain firewall-check { ip daddr . meta l4proto . th dport vmap @firewall-ips; }
	chain filter-prerouting { type filter hook prerouting priority dstnat - 10; ct state new jump firewall-check; }
	chain filter-forward {
		type filter hook forward priority filter;
		ct state new jump service-endpoints-check; ct state new jump cluster-ips-check;
	}
	chain filter-output {
		type filter hook output priority filter;
		ct state new jump service-endpoints-check; ct state new jump cluster-ips-check;
	}
	chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
	chain nat-output { type nat hook output priority -100; jump services; }
	chain nat-postrouting { type nat hook postrouting priority srcnat; jump masquerading; }
`
