// SPDX-License-Identifier: Apache-2.0

package pasted

import (
	"slices"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	const want = "a \"b\"\nc -> d\n"
	for name, text := range map[string]string{
		"as it is":          want,
		"Windows line ends": "a \"b\"\r\nc -> d\r\n",
		"indentation":       "  a \"b\"\n\tc -> d\n",
		"trailing blanks":   "a \"b\" \nc -> d\t\n",
	} {
		if got := Text([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := Text([]byte("```console\na\n```\n~~~\n")); got != "\na\n\n\n" {
		t.Errorf("fences: %q", got)
	}
}

func TestCommandOf(t *testing.T) {
	is := func(tool string) bool { return strings.HasPrefix(tool, "iptables") }
	for line, want := range map[string]Command{
		"root@node1:~# iptables -t nat -S":                  {Tool: "iptables", Args: []string{"-t", "nat", "-S"}},
		"[root@node1 ~]# iptables-save":                     {Tool: "iptables-save"},
		"$ sudo /usr/sbin/iptables-save -c | less":          {Tool: "iptables-save", Args: []string{"-c"}},
		"# iptables-save|grep KUBE":                         {Tool: "iptables-save", Filtered: true},
		"$ iptables-save 2>/dev/null | grep -v flannel":     {Tool: "iptables-save", Filtered: true},
		"$ iptables-save > rules.txt":                       {Tool: "iptables-save"},
		"This is the output of `iptables-save -t nat`:":     {Tool: "iptables-save", Args: []string{"-t", "nat"}},
		"node1 $ kubectl debug node/x -- iptables -S | cat": {Tool: "iptables", Args: []string{"-S"}},
		"node1 #iptables-save":                              {Tool: "iptables-save"},
	} {
		got, ok := CommandOf(line, is)
		if !ok || got.Tool != want.Tool || !slices.Equal(got.Args, want.Args) && len(got.Args)+len(want.Args) > 0 ||
			got.Filtered != want.Filtered {
			t.Errorf("%q: %+v %v, want %+v", line, got, ok, want)
		}
	}
	for _, line := range []string{"", "what is wrong?", "-A INPUT -j ACCEPT", "root@node1:~# ip6tables-save"} {
		if c, ok := CommandOf(line, is); ok {
			t.Errorf("%q: %+v", line, c)
		}
	}
}

func TestElided(t *testing.T) {
	for line, want := range map[string]bool{
		"...": true, "…": true, "--": true, "[...]": true, "[snip]": true, "<truncated>": true, "# ... (omitted)": true,
		"(12 more rules)": true, "-A INPUT -j DROP": false, "COMMIT": false, "so this is it": false, "": false,
		"-A INPUT -m comment --comment \"what was removed is written here at some length\" -j DROP": false,
	} {
		if Elided(line) != want {
			t.Errorf("%q: %v", line, !want)
		}
	}
}

func TestPrompt(t *testing.T) {
	for line, want := range map[string]bool{
		"root@node1:~#": true, "$": true, "node01 $ ": true, "[root@k8s ~]# ls": true, "root@node1:/# exit": true,
		"# ls":          true,
		"so this is it": false, "-A X -j Y": false, "TCP  10.96.0.1:443 rr": false, "": false,
	} {
		if Prompt(line) != want {
			t.Errorf("%q: %v", line, !want)
		}
	}
}

// FuzzText: the number of lines stays, and a second time nothing changes but for what the first one uncovered.
func FuzzText(f *testing.F) {
	for _, s := range []string{"a\r\n b\n", "\xff\xfea\x00", "```\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got := Text(data)
		if text := string(data); strings.Count(got, "\n") != strings.Count(text, "\n") {
			t.Errorf("%q: other lines: %q", text, got)
		}
		for line := range strings.Lines(got) {
			CommandOf(line, func(string) bool { return strings.HasPrefix(line, "x") })
			Elided(line)
			Prompt(line)
		}
	})
}
