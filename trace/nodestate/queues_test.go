// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Queues are on a path where they may lose packets also if there are few: as tc prints them, and as the helper does.
func TestQueuesThatLosePackets(t *testing.T) {
	for text, want := range map[string]bool{
		"qdisc noqueue 0: root refcnt 2": false,
		"qdisc mq 0: root":               false,
		"qdisc pfifo_fast 0: parent :1 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1":   false,
		"qdisc fq_codel 0: root refcnt 2 limit 10240p flows 1024 quantum 1514 target 5ms": false,
		"qdisc fq_codel 8001: root refcnt 2 limit 0p":                                     true,
		"qdisc fq 8002: root refcnt 2 limit 10000p flow_limit 100p buckets 1024":          false,
		"qdisc fq 8002: root refcnt 2 limit 10000p flow_limit 100p maxrate 8Kbit":         true,
		"qdisc pfifo 8001: root refcnt 2 limit 0p":                                        true,
		"qdisc pfifo limit 0p":                                                                true,
		"qdisc pfifo 8001: root refcnt 2 limit 1p":                                            false,
		"qdisc pfifo_head_drop 8001: root refcnt 2 limit 0p":                                  true,
		"qdisc bfifo 8001: root refcnt 2 limit 10b":                                           true,
		"qdisc bfifo 8001: root refcnt 2 limit 15Kb":                                          false,
		"qdisc sfq 8001: root refcnt 2 limit 127p quantum 1514b depth 127 divisor 1024":       false,
		"qdisc red 8001: root refcnt 2 limit 100b min 10b max 50b":                            true,
		"qdisc red 8001: root refcnt 2 limit 400Kb min 30Kb max 90Kb":                         false,
		"qdisc tbf 8001: root refcnt 2 rate 8bit burst 57b lat 3.59e+03s":                     true,
		"qdisc tbf 8001: root refcnt 2 rate 8Kbit burst 32Kb lat 3.59e+03s":                   true,
		"qdisc tbf rate 1000bps burst 32768b limit 300000b":                                   true,
		"qdisc tbf 8001: root refcnt 2 rate 100Mbit burst 32Kb lat 21.4ms":                    false,
		"qdisc tbf 8001: root refcnt 2 rate 100Mbit burst 32Kb peakrate 200Mbit minburst 75b": true,
		"qdisc tbf rate 12500000bps burst 32768b limit 300000b":                               false,
		"qdisc tbf 8001: root refcnt 2 rate 1Gbit burst 125Kb lat 50ms":                       false,
		"qdisc htb 1: root refcnt 2 r2q 10 default 0x1 direct_packets_stat 0":                 false,
		"qdisc htb 1: root refcnt 2 r2q 10 default 0 direct_packets_stat 0 direct_qlen 0":     true,
		"qdisc htb direct_qlen 1000p":                                                         false,
		"qdisc pfifo 0: parent 1:1 limit 0p":                                                  true,
		"qdisc tbf rate 125000000bps burst 50000b limit 300000b overhead 0 mpu 60000":         true,
		"qdisc tbf rate 125000000bps burst 50000b limit 300000b overhead -4 mpu 64":           false,
		"qdisc pfifo limit 100p overhead 0 mpu 60000":                                         false,
		"qdisc fq_codel limit 10240p overhead 60000 mpu 0":                                    false,
		"qdisc prio bands 3 overhead 0 mpu 60000":                                             true,
		"qdisc bfifo limit 65536b overhead 0 mpu 60000":                                       true,
		"class htb 1:1 root prio 0 rate 8bit ceil 8bit burst 225b cburst 225b":                true,
		"class htb 1:1 root prio 0 rate 8bit ceil 100Mbit burst 225b cburst 1600b":            false,
		"class htb 1:2 rate 12500000bps ceil 12500000bps":                                     false,
		"qdisc cake 8001: root refcnt 2 bandwidth 8Kbit diffserv3":                            true,
		"qdisc cake 8001: root refcnt 2 bandwidth unlimited diffserv3":                        false,
		"qdisc blackhole 8001: root refcnt 2":                                                 true,
		"qdisc netem 8001: root refcnt 2 limit 1000 delay 1ms":                                true,
		"qdisc drr 8001: root refcnt 2":                                                       true,
		"qdisc hfsc 1: root refcnt 2":                                                         true,
		"qdisc etf 8001: root refcnt 2":                                                       true,
		"qdisc of_tomorrow 8001: root refcnt 2":                                               true,
	} {
		tables, err := parsePrograms([]byte("tc eth0 egress " + text + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(met(tables, netfilter.Packet{Family: netfilter.IPv4}), "qdisc eth0 egress"); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
