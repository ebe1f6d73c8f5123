// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// hostile is a value as a node or a tenant may write it: it would turn the text green, erase the line, write a line of
// its own, and reverse what follows.
const hostile = "web\x1b[32m\x1b[2K\r\nerror: forged\u202e\u200b"

const harmless = "web\uFFFD[32m\uFFFD[2K  error: forged\uFFFD\uFFFD"

func noEnv(string) string { return "" }

func TestLinesStayOneLine(t *testing.T) {
	var b bytes.Buffer
	s := Live(&b, Style{Color: true})
	s.Line("node %s", hostile)
	s.Prompt("Program %s?", hostile)
	text := NewText(true)
	text.Linef("%s: %d", hostile, 1)
	text.Add(Red, hostile)
	text.End()
	text.Blank()
	if err := s.Text(text); err != nil {
		t.Fatal(err)
	}
	want := "node " + harmless + "\nProgram " + harmless + "? " + harmless + ": 1\n\x1b[31;1m" + harmless + "\x1b[0m\n\n"
	if got := b.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestColorIsOffWithoutATerminal(t *testing.T) {
	text := NewText(false)
	text.Add(Green, "ok")
	text.End()
	var b bytes.Buffer
	s := NewStream(&b, noEnv)
	s.Erase(3)
	if err := s.Text(text); err != nil || b.String() != "ok\n" {
		t.Errorf("got %q, %v", b.String(), err)
	}
}

func TestDocument(t *testing.T) {
	for _, tt := range []struct {
		terminal bool
		in, want string
	}{
		{false, "a\n\tb", "a\n\tb"},
		{true, "a\n\tb", "a\n\tb\n"},
		{true, "a\n", "a\n"},
		{true, "", ""},
		{false, "\x1b[32ma\u202e\r\n\u0085\xff", "\uFFFD[32ma\uFFFD \n \uFFFD"},
	} {
		var b bytes.Buffer
		s := NewStream(&b, noEnv)
		if tt.terminal {
			s = Live(&b, Style{})
		}
		if err := s.Document([]byte(tt.in)); err != nil || b.String() != tt.want {
			t.Errorf("%q: got %q, %v; want %q", tt.in, b.String(), err, tt.want)
		}
	}
	var b bytes.Buffer
	n, err := NewStream(&b, noEnv).Writer().Write([]byte("a\x1b\n"))
	if n != 3 || err != nil || b.String() != "a\uFFFD\n" {
		t.Errorf("got %q, %d, %v", b.String(), n, err)
	}
}

// What is printed as JSON and YAML has the same values, and nothing unsafe in it.
func TestEncodedValuesStay(t *testing.T) {
	values := map[string]any{
		"hostile": hostile, hostile: "key", "list": []any{"plain", hostile + "\U000E0041", map[string]any{"x": "y"}},
		"number": "8080", "tricky": "- |\u00a0", "many": "a\nb\n", "none": nil, "controls": "\x7f\u0085\u009b\x00",
	}
	data, err := json.MarshalIndent(values, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]struct {
		print  func(s *Stream) error
		decode func([]byte, any) error
	}{
		"JSON": {func(s *Stream) error { return s.JSON(data) }, json.Unmarshal},
		"YAML": {
			func(s *Stream) error { return s.YAML(data) },
			func(text []byte, to any) error { return yaml.Unmarshal(text, to) },
		},
	} {
		var b bytes.Buffer
		if err := f.print(NewStream(&b, noEnv)); err != nil {
			t.Fatal(err)
		}
		out := b.String()
		if strings.ContainsAny(out, "\x1b\r\u202e\u200b\u00a0\uFFFD") || strings.Contains(out, "\nerror") {
			t.Errorf("%s is unsafe: %q", name, out)
		}
		var got map[string]any
		if err := f.decode(b.Bytes(), &got); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		want, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		if have, err := json.Marshal(got); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s changed the values: got %s, %v; want %s", name, have, err, want)
		}
	}
}

func TestHarmlessYAMLIsAsKubectlHasIt(t *testing.T) {
	const text = `{"a": [{"b": "80", "c": "x | y", "n": 80}], "d": "é", "e": ""}`
	const want = "a:\n- b: \"80\"\n  c: x | y\n  \"n\": 80\nd: é\ne: \"\"\n"
	var b bytes.Buffer
	if err := NewStream(&b, noEnv).YAML([]byte(text)); err != nil || b.String() != want {
		t.Errorf("got %q, %v", b.String(), err)
	}
}

func TestArchive(t *testing.T) {
	const data = "\x1f\x8b\x08\x00\xff\x1b"
	var b bytes.Buffer
	if err := NewStream(&b, noEnv).Archive(strings.NewReader(data)); err != nil || b.String() != data {
		t.Errorf("got %q, %v", b.String(), err)
	}
	b.Reset()
	if err := Live(&b, Style{}).Archive(strings.NewReader(data)); err == nil || b.Len() > 0 {
		t.Errorf("a terminal took %q", b.String())
	}
}

func TestStyle(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, s := range map[string]*Stream{
		"a buffer": NewStream(&bytes.Buffer{}, noEnv), "/dev/null": NewStream(null, noEnv),
	} {
		if s.Style() != (Style{}) || s.IsLive() {
			t.Errorf("%s has style %+v, live %v", name, s.Style(), s.IsLive())
		}
	}
}

// TestColumns: what is no terminal has the width that someone exports, such as watch(1).
func TestColumns(t *testing.T) {
	for value, want := range map[string]int{
		"": 0, "80": 80, "20": 20, "19": 0, "0": 0, "-80": 0, "80x": 0, "10001": 0, "99999999999999999999": 0,
	} {
		getenv := func(key string) string {
			if key == "COLUMNS" {
				return value
			}
			return ""
		}
		if got := NewStream(&bytes.Buffer{}, getenv).Style(); got != (Style{Width: want}) {
			t.Errorf("COLUMNS=%q: %+v, want a width of %d and no colour", value, got, want)
		}
	}
}

// An error that is wider than the terminal is wrapped between words; a command in it stays whole, what is continued is
// indented, and without a terminal it is one line.
func TestSentencesFitTheTerminal(t *testing.T) {
	const sentence = `error: "web" is not a command; to trace a Service: kubectl svcproxy trace web ` +
		"(see kubectl svcproxy --help)"
	for _, tt := range []struct {
		width int
		in    string
		want  string
	}{
		{0, sentence, sentence + "\n"},
		{200, sentence, sentence + "\n"},
		{60, sentence, `error: "web" is not a command; to trace a Service:` + "\n  kubectl svcproxy trace web " +
			"(see kubectl svcproxy --help)\n"},
		{40, "note: " + hostile + " and so on", "note: web\uFFFD[32m\uFFFD[2K error: forged\uFFFD\uFFFD and\n  so on\n"},
	} {
		var b bytes.Buffer
		Live(&b, Style{Width: tt.width}).Sentence("%s", tt.in)
		if got := b.String(); got != tt.want {
			t.Errorf("at %d columns: got %q, want %q", tt.width, got, tt.want)
		}
	}
	var b bytes.Buffer
	NewStream(&b, func(string) string { return "40" }).Sentence("%s", sentence)
	if b.String() != sentence+"\n" {
		t.Errorf("without a terminal: got %q", b.String())
	}
}
