// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"testing"
)

func TestUnreadableLine(t *testing.T) {
	const rules = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m comment --comment \"XT match of mine\" -j ACCEPT\n"
	for text, want := range map[string]string{
		"":    "",
		rules: "",
		rules + "# Table `nat' is incompatible, use 'nft' tool.\nCOMMIT\n":                        "# Table `nat' is incompatible, use 'nft' tool.",
		"# Table `nat' contains incompatible base-chains, use 'nft' tool to list them.\n" + rules: "",
		"# Table `nat' contains incompatible base-chains, use 'nft' tool to list them.\n-A X [8 bytes of unknown " +
			"match data] -j Y": "-A X [8 bytes of unknown match data] -j Y",
		rules + "-A X -m foo [4 bytes of unknown target data]\n":   "-A X -m foo [4 bytes of unknown target data]",
		rules + "-A X -m set unsupported revision\n":               "-A X -m set unsupported revision",
		rules + "XT match `foo' not found\n":                       "XT match `foo' not found",
		rules + "XT target `FOO' not found":                        "XT target `FOO' not found",
		"XT target of mine\nis not found\n":                        "",
		"-A X -m comment --comment \"is not found by XT match a\"": "",
		"4 bytes of unknown origin, or data\nXT match `a' not found, nor is XT match `b'\n": "XT match `a' not found, " +
			"nor is XT match `b'",
	} {
		if got := string(unreadableLine([]byte(text))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// BenchmarkUnreadableLine searches what a node of 5,000 Services has: each reading looks at all of it.
func BenchmarkUnreadableLine(b *testing.B) {
	text := bytes.Repeat([]byte(`[0:0] -A KUBE-SVC-ABCDEFGHIJKLMNOP ! -s 10.244.0.0/16 -d 10.96.12.34/32 -p tcp -m comment `+
		`--comment "scale/svc-01234:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ`+"\n"), 97_000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if unreadableLine(text) != nil {
			b.Fatal("nothing is unreadable")
		}
	}
}
