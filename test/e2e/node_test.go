// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// nodeState is the part of a node's state that a run must not change, by the tool that printed it.
type nodeState map[string]string

var (
	counters = regexp.MustCompile(`\[\d+:\d+\]|"counter": \{"packets": \d+, "bytes": \d+\}`)
	passing  = regexp.MustCompile(`(?m)^#.*$|^.*expires.*$`)
)

// settledState reads a node, by other means than the helper's, once kube-proxy changes nothing more.
func settledState(t *testing.T, node string) nodeState {
	t.Helper()
	var state nodeState
	wait(t, "the node's rules change no more", func() (bool, error) {
		before := state
		state = readState(t, node)
		changed := state.differs(before)
		if len(changed) > 0 {
			t.Logf("%d lines change, such as %s", len(changed), changed[0])
			time.Sleep(time.Second) // kube-proxy's minSyncPeriod
		}
		return len(changed) == 0, fmt.Errorf("they change: %s", strings.Join(changed, "\n"))
	})
	return state
}

func readState(t *testing.T, node string) nodeState {
	t.Helper()
	state := nodeState{}
	for name, argv := range map[string][]string{
		"iptables, nft":     {"/usr/sbin/iptables-nft-save"},
		"iptables, legacy":  {"/usr/sbin/iptables-legacy-save"},
		"ip6tables, nft":    {"/usr/sbin/ip6tables-nft-save"},
		"ip6tables, legacy": {"/usr/sbin/ip6tables-legacy-save"},
		"nftables":          {"/usr/sbin/nft", "-s", "list", "ruleset"},
		"ipset":             {"/usr/sbin/ipset", "save"},
		"routes":            {"/usr/bin/ip", "route", "show", "table", "all"},
		"rules":             {"/usr/bin/ip", "rule"},
	} {
		text := counters.ReplaceAllString(onNode(t, node, nil, argv...), "")
		state[name] = passing.ReplaceAllString(text, "")
	}
	return state
}

// differs lists the lines that are not the same in two states.
func (s nodeState) differs(before nodeState) []string {
	var out []string
	for name, text := range s {
		was, is := strings.Split(before[name], "\n"), strings.Split(text, "\n")
		for _, line := range was {
			if !slices.Contains(is, line) {
				out = append(out, name+": - "+line)
			}
		}
		for _, line := range is {
			if !slices.Contains(was, line) {
				out = append(out, name+": + "+line)
			}
		}
	}
	return out
}

// same fails where two states differ.
func (s nodeState) same(t *testing.T, before nodeState) {
	t.Helper()
	if d := s.differs(before); len(d) > 0 {
		t.Errorf("the node was changed:\n%s", strings.Join(d, "\n"))
	}
}
