// SPDX-License-Identifier: Apache-2.0

package plaintext

import (
	"slices"
	"testing"
)

func TestLastItems(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{"2 endpoints, 1 missing, 1 stale", 31, "2 endpoints, 1 missing, 1 stale"},
		{"2 endpoints, 1 missing, 1 stale", 30, "1 missing, 1 stale"},
		{"2 endpoints, 1 missing, 1 stale", 17, "1 stale"},
		{"2 endpoints, 1 missing, 1 stale", 6, "1 stale"},
		{"1 endpoint, 10.244.2.12:8080 dropped", 20, "10.244.2.12:8080 dropped"},
		{"1 endpoint, 10.244.2.12:8080 dropped", 24, "10.244.2.12:8080 dropped"},
		{"not programmed", 20, "not programmed"},
		{"2 endpoints, 1 missing", 0, "2 endpoints, 1 missing"},
		{"", 5, ""},
	} {
		if got := LastItems(tt.in, tt.limit); got != tt.want {
			t.Errorf("LastItems(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  []string
	}{
		{"one two", 0, []string{"one two"}},
		{"one two three", 7, []string{"one two", "three"}},
		{"one two  three four", 12, []string{"one two", "three four"}},
		{"one  two  three", 9, []string{"one  two", "three"}},
		{"averylongword x", 5, []string{"averylongword", "x"}},
		{"one two three  four", 8, []string{"one two", "three", "four"}},
	} {
		if got := Wrap(tt.in, tt.limit); !slices.Equal(got, tt.want) {
			t.Errorf("Wrap(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

// Names and addresses stay whole, whatever the width: half of one cannot be copied, and may be taken for another one.
func TestWrapCell(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  []string
	}{
		{"shop/web-7c9d8f6b5d-2xkqp", 0, []string{"shop/web-7c9d8f6b5d-2xkqp"}},
		{"shop/web-7c9d8f6b5d-2xkqp", 25, []string{"shop/web-7c9d8f6b5d-2xkqp"}},
		{"shop/web-7c9d8f6b5d-2xkqp", 24, []string{"shop/", "web-7c9d8f6b5d-2xkqp"}},
		{"shop/web-7c9d8f6b5d-2xkqp", 5, []string{"shop/", "web-7c9d8f6b5d-2xkqp"}},
		{"MissingEndpoint,StaleEndpoint", 20, []string{"MissingEndpoint,", "StaleEndpoint"}},
		{"NodePort 10.77.0.11:31443", 20, []string{"NodePort", "10.77.0.11:31443"}},
		{"NodePort 10.77.0.11:31443", 5, []string{"NodePort", "10.77.0.11:31443"}},
		{"10.244.0.0/16,fd00:10:244::/56", 16, []string{"10.244.0.0/16,", "fd00:10:244::/56"}},
		{"  10.244.1.15:8080 and more", 18, []string{"  10.244.1.15:8080", "  and more"}},
		{"a,b,c d,e", 4, []string{"a,b,", "c", "d,e"}},
		{"", 5, []string{""}},
	} {
		if got := WrapCell(tt.in, tt.limit); !slices.Equal(got, tt.want) {
			t.Errorf("WrapCell(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
		if tt.limit > 0 && slices.ContainsFunc(tt.want, func(l string) bool { return Width(l) > tt.limit }) !=
			(Unbroken(tt.in) > tt.limit) {
			t.Errorf("Unbroken(%q) = %d", tt.in, Unbroken(tt.in))
		}
	}
}

func TestWrapRule(t *testing.T) {
	const rule = `-p tcp -m comment --comment "shop/web:http cluster IP" -m tcp --dport 80 -j KUBE-SEP-LPRYETXTYMQCMNCE`
	for _, tt := range []struct {
		in    string
		limit int
		want  []string
	}{
		{rule, 0, []string{rule}},
		{rule, 50, []string{
			"-p tcp -m comment", `--comment "shop/web:http cluster IP" -m tcp`, "--dport 80 -j KUBE-SEP-LPRYETXTYMQCMNCE",
		}},
		{rule, 28, []string{
			"-p tcp -m comment --comment", `"shop/web:http cluster IP"`, "-m tcp --dport 80",
			"-j KUBE-SEP-LPRYETXTYMQCMNCE",
		}},
		{rule, 27, []string{
			"-p tcp -m comment --comment", `"shop/web:http cluster IP"`, "-m tcp --dport 80 -j", "KUBE-SEP-LPRYETXTYMQCMNCE",
		}},
		{`  rule 2: "a -> b" -j X`, 16, []string{`  rule 2:`, `  "a -> b" -j X`}},
		{"a ! -s 10.0.0.0/8 -j X", 16, []string{"a", "! -s 10.0.0.0/8", "-j X"}},
		{"id: 8babef6c55537c297158 -j", 10, []string{"id:", "8babef6c55", "537c297158", "-j"}},
		{`--comment "never closed -j X`, 12, []string{"--comment", `"never`, "closed -j X"}},
		{"中文中文", 5, []string{"中文", "中文"}},
		{"中", 1, []string{"中"}},
		{"one two", 7, []string{"one two"}},
	} {
		if got := WrapRule(tt.in, tt.limit); !slices.Equal(got, tt.want) {
			t.Errorf("WrapRule(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

func TestWidth(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "web-7c9d": 8, "→…✓–": 4, "äöü": 3, "中文": 4, "e\u0301": 1, "\uFFFD[31m": 5, "한글": 4, "ｗｅｂ": 6,
	} {
		if got := Width(in); got != want {
			t.Errorf("Width(%q) = %d, want %d", in, got, want)
		}
	}
}
