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

// look is what a node holds that a run must not change.
type look map[string]string

var (
	counters = regexp.MustCompile(`\[\d+:\d+\]|"counter": \{"packets": \d+, "bytes": \d+\}`)
	passing  = regexp.MustCompile(`(?m)^#.*$|^.*expires.*$`)
)

// lookAt reads a node, by other means than the helper's, once kube-proxy has come to rest.
func lookAt(t *testing.T, node string) look {
	t.Helper()
	var l look
	wait(t, "the node's rules come to rest", func() (bool, error) {
		before := l
		l = lookOnce(t, node)
		changed := l.differs(before)
		if len(changed) > 0 {
			t.Logf("%d lines change, such as %s", len(changed), changed[0])
			time.Sleep(time.Second) // kube-proxy's minSyncPeriod
		}
		return len(changed) == 0, fmt.Errorf("they change: %s", strings.Join(changed, "\n"))
	})
	return l
}

func lookOnce(t *testing.T, node string) look {
	t.Helper()
	l := look{}
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
		l[name] = passing.ReplaceAllString(text, "")
	}
	return l
}

// differs lists the lines that are not the same in two looks.
func (l look) differs(before look) []string {
	var out []string
	for name, text := range l {
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

// same fails where two looks differ.
func (l look) same(t *testing.T, before look) {
	t.Helper()
	if d := l.differs(before); len(d) > 0 {
		t.Errorf("the node was changed:\n%s", strings.Join(d, "\n"))
	}
}
