// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"strconv"
	"strings"
)

// frame is what a queue has to take, in bytes, for packets of the usual size to pass. One that passes less in a second
// holds up the packets of a connection for longer than its client waits.
const frame = 2048

// losing are the parameters by which a queue of tc may lose packets also where there are few of them, or hold them up:
// each is read from its text, as tc prints it.
type losing func(text []string) bool

// queueKinds are the queues of tc (net/sched/sch_*.c). A kind that is not here may do anything.
var queueKinds = map[string]losing{
	"noqueue": never, "mq": never, "mqprio": never, "multiq": never, "prio": never, "ets": never, "pfifo_fast": never,
	"clsact": never, "ingress": never,
	// They take packets until there are so many, or so many bytes: those that wait are few.
	"pfifo": below("limit"), "pfifo_head_drop": below("limit"), "bfifo": below("limit"), "sfq": below("limit"),
	"red": below("limit"), "gred": never, "choke": below("limit"), "sfb": below("limit"), "codel": below("limit"),
	"fq_codel": below("limit"), "pie": below("limit"), "fq_pie": below("limit"), "hhf": below("limit"),
	"dualpi2": below("limit"), "skbprio": below("limit"), "fq": below("limit", "flow_limit", "maxrate"),
	// They limit a rate, too. The classes of htb are listed for themselves.
	"tbf": below("limit", "burst", "rate", "peakrate", "minburst", "lat"), "cake": below("bandwidth"),
	"htb": below("direct_qlen"),
	// They are made to lose or to hold up packets.
	"netem": always, "blackhole": always, "plug": always, "noop": always,
	// They drop what no filter gives a class (hfsc_enqueue, drr_enqueue, qfq_enqueue), or what has no time (etf).
	"hfsc": always, "drr": always, "qfq": always, "etf": always,
}

// counting are the queues without others below them that do not limit bytes: for how large they take packets decides at
// most which waits for which.
var counting = map[string]bool{
	"noqueue": true, "pfifo": true, "pfifo_head_drop": true, "pfifo_fast": true, "sfq": true, "codel": true,
	"fq_codel": true, "pie": true, "fq_pie": true, "hhf": true, "skbprio": true, "clsact": true, "ingress": true,
}

func never([]string) bool  { return false }
func always([]string) bool { return true }

// below is for a queue that loses packets where one of its parameters is too small.
func below(names ...string) losing {
	return func(text []string) bool {
		for i := range len(text) - 1 {
			for _, name := range names {
				if text[i] == name && tooSmall(text[i+1]) {
					return true
				}
			}
		}
		return false
	}
}

// above is for a queue that counts packets as larger than they are (tc-stab(8)), where it limits bytes.
func above(names ...string) losing {
	return func(text []string) bool {
		for i := range len(text) - 1 {
			if n, err := strconv.Atoi(text[i+1]); err == nil && n > frame && slices.Contains(names, text[i]) {
				return true
			}
		}
		return false
	}
}

// losesPackets tells whether a queue may lose packets, or hold them up; text is what tc prints of it, from its kind on.
func losesPackets(text []string) bool {
	if len(text) == 0 {
		return false
	}
	loses, known := queueKinds[text[0]]
	return !known || loses(text[1:]) || !counting[text[0]] && above("overhead", "mpu")(text[1:])
}

// classHolds tells whether a class of a queue passes too little; text is what tc prints of it, from its kind on.
func classHolds(text []string) bool { return len(text) > 0 && below("ceil")(text[1:]) }

// units are those of sizes, rates and numbers as tc prints them, the longest first: what one is in bytes, bytes a
// second, or frames.
var units = []struct {
	name  string
	worth float64
}{
	{"Tbit", 1e12 / 8},
	{"Gbit", 1e9 / 8},
	{"Mbit", 1e6 / 8},
	{"Kbit", 1e3 / 8},
	{"bit", 1.0 / 8},
	{"GBps", 1e9},
	{"MBps", 1e6},
	{"KBps", 1e3},
	{"bps", 1},
	{"Gb", 1 << 30},
	{"Mb", 1 << 20},
	{"Kb", 1 << 10},
	{"p", frame}, // a queue for one packet takes one
	{"b", 1},
}

// tooSmall tells whether a size, a rate or a number of packets is too small for a packet of the usual size; 0 of time
// is, too. A number without a unit is of packets.
func tooSmall(s string) bool {
	if s == "0us" || s == "0s" {
		return true
	}
	for _, u := range units {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			if n, err := strconv.ParseFloat(number, 64); err == nil {
				return n*u.worth < frame
			}
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	return err == nil && n < 1
}
