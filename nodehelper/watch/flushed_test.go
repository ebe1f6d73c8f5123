// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// flushed returns a node of which all chains of kube-proxy are empty, as after iptables -F and nft flush chain.
func flushed(t *testing.T, n *snapshot.Node) *snapshot.Node {
	t.Helper()
	changed := false
	for _, file := range snapshot.NodeFiles {
		data, ok, err := n.File(file)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			continue
		}
		now := data
		switch {
		case file == snapshot.NFTFile:
			now = withoutNFTRules(t, data)
		case strings.HasSuffix(file, "-save.txt"):
			now = regexp.MustCompile(`(?m)^(\[\d+:\d+\] )?-A KUBE-.*\n`).ReplaceAll(data, nil)
		}
		if !bytes.Equal(now, data) {
			n, changed = n.With(file, now), true
		}
	}
	if !changed {
		t.Fatal("no file has a rule of kube-proxy's")
	}
	return n
}

// withoutNFTRules takes the rules of kube-proxy's tables out of what nft lists.
func withoutNFTRules(t *testing.T, data []byte) []byte {
	t.Helper()
	var all struct {
		Objects []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	kept := all.Objects[:0]
	for _, o := range all.Objects {
		var rule struct{ Table string }
		if o["rule"] != nil {
			if err := json.Unmarshal(o["rule"], &rule); err != nil {
				t.Fatal(err)
			}
		}
		if rule.Table != "kube-proxy" {
			kept = append(kept, o)
		}
	}
	all.Objects = kept
	out, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRulesThatAreFlushed: where all rules of kube-proxy are gone, paths are wrong after the second pass behind its
// time, and no more once the rules are back. An agent that starts then, as after it was killed, tells the same by its
// second pass.
func TestRulesThatAreFlushed(t *testing.T) {
	for _, name := range []string{"real-2node-iptables", "iptables-legacy", "real-2node-nftables", "nftables"} {
		t.Run(name, func(t *testing.T) {
			c := capture(t, name, "node1")
			healthy := c.node
			a := c.agent(t)
			wrong := func(a *Agent) string { return exposed(t, a.Handler())[`svcproxy_paths{verdict="Mismatch"}`] }
			look(t, a, 0)
			look(t, a, 60)
			if got := wrong(a); got != "0" {
				t.Fatalf("on the healthy node %s paths are wrong", got)
			}
			c.node = flushed(t, healthy)
			look(t, a, 70)
			if got := wrong(a); got != "0" {
				t.Errorf("seen once: %s paths are wrong", got)
			}
			look(t, a, 100)
			told := wrong(a)
			if told == "0" {
				t.Error("seen twice: no path is wrong")
			}
			restarted := capture(t, name, "node1") // the fake client gives the same objects to everybody who watches
			restarted.node = c.node
			again := restarted.agent(t)
			look(t, again, 0)
			if got := wrong(again); got != "0" {
				t.Errorf("after its start, seen once: %s paths are wrong", got)
			}
			look(t, again, 30)
			if got := wrong(again); got != told {
				t.Errorf("after its start, seen twice: %s paths are wrong, want %s", got, told)
			}
			c.node = healthy
			look(t, a, 110)
			if got := wrong(a); got != "0" {
				t.Errorf("repaired: %s paths are wrong", got)
			}
		})
	}
}
