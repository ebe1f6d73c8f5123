// SPDX-License-Identifier: Apache-2.0

package print

import "testing"

func TestWordsOfRules(t *testing.T) {
	for text, want := range map[string]string{
		"":         "",
		"a  b":     "a  b",
		"<b> &":    "&lt;b&gt; &amp;",
		"-j DROP":  `<span class="word">-j</span> DROP`,
		"x-<i> ok": `<span class="word">x-&lt;i&gt;</span> ok`,
		"-A KUBE-SERVICES -d 10.96.0.1/32": `<span class="word">-A</span> <span class="word">KUBE-SERVICES</span> ` +
			`<span class="word">-d</span> <span class="word">10.96.0.1/32</span>`,
	} {
		if got := string(words(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
