// SPDX-License-Identifier: Apache-2.0

package judge

// What no reader knows, in every file of the contract: it is noticed, or cannot change a verdict, and the table says
// why. Skipped silently is a fault.

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// alien is something in a file that no reader knows. tolerated says why it cannot change a verdict; "": it has to be
// noticed.
type alien struct {
	what      string
	put       func(data string) string
	tolerated string
}

// atEnd puts lines after those of a text; amid puts them after its first line.
func atEnd(text string) func(string) string {
	return func(data string) string { return data + text + "\n" }
}

func amid(text string) func(string) string {
	return func(data string) string {
		first, rest, _ := strings.Cut(data, "\n")
		return first + "\n" + text + "\n" + rest
	}
}

// element appends an element to the last list of a JSON text.
func element(text string) func(string) string {
	return func(data string) string {
		at := strings.LastIndex(data, "]")
		comma := ","
		if strings.HasSuffix(strings.TrimSpace(data[:at]), "[") {
			comma = ""
		}
		return data[:at] + comma + text + data[at:]
	}
}

// field puts a field into the first object of a JSON text.
func field(text string) func(string) string {
	return func(data string) string {
		at := strings.Index(data, "{")
		comma := ","
		if strings.HasPrefix(strings.TrimSpace(data[at+1:]), "}") {
			comma = ""
		}
		return data[:at+1] + text + comma + data[at+1:]
	}
}

// rightAfter puts a text after a part of another.
func rightAfter(part, text string) func(string) string {
	return func(data string) string { return strings.Replace(data, part, part+text, 1) }
}

const (
	newerHave = "newer versions have more fields, none of which takes back what the known ones say"
	forPeople = "it is kept for people"
	anyMetric = "any metric may be there, and each is one line"
)

var (
	anyText = []alien{
		{what: "a line at its end", put: atEnd("hello world")},
		{what: "a line in it", put: amid("hello world")},
		{what: "a word", put: atEnd("hello")},
	}
	anyList = []alien{
		{what: "an element", put: element(`{"hello":"world"}`)},
		{what: "a string as an element", put: element(`"hello"`)},
		{what: "a list as an element", put: element(`[1]`)},
		{what: "text after it", put: atEnd("hello world")},
		{what: "another object after it", put: atEnd(`{"hello":"world"}`)},
		{what: "a field", put: field(`"hello":"world"`), tolerated: newerHave},
	}
	anyObject = []alien{
		{what: "text after it", put: atEnd("hello world")},
		{what: "another object after it", put: atEnd(`{"hello":"world"}`)},
		{what: "a field", put: field(`"hello":"world"`), tolerated: newerHave},
	}
)

// tolerating are aliens that may be there for a reason.
func tolerating(list []alien, why string) []alien {
	out := slices.Clone(list)
	for i := range out {
		out[i].tolerated = why
	}
	return out
}

var firstRule = regexp.MustCompile(`(?m)^(\[\d+:\d+\] )?-A `)

// inSave puts lines into a table of a save file: before its first chain, before a rule, before its end, and before it.
func inSave(table, line string) []alien {
	return []alien{
		{what: line + " before the chains", put: rightAfter("*"+table+"\n", line+"\n")},
		{what: line + " before the rules", put: func(data string) string {
			before, in, _ := strings.Cut(data, "*"+table+"\n")
			at := firstRule.FindStringIndex(in)[0]
			return before + "*" + table + "\n" + in[:at] + line + "\n" + in[at:]
		}},
		{what: line + " at the end", put: func(data string) string {
			before, in, _ := strings.Cut(data, "*"+table+"\n")
			return before + "*" + table + "\n" + strings.Replace(in, "\nCOMMIT", "\n"+line+"\nCOMMIT", 1)
		}},
		{what: line + " before the table", put: func(data string) string {
			return strings.Replace(data, "*"+table+"\n", line+"\n*"+table+"\n", 1)
		}},
	}
}

// aliens are those of each file, by the captured node that has it.
func aliens(fixture, file string, data []byte) []alien {
	switch file {
	case v4:
		if fixture != "iptables" {
			return nil
		}
		var out []alien
		for table, lines := range map[string][]string{
			"filter": {
				"-I FORWARD 1 -j DROP", "--append FORWARD -j DROP", "-F", "-D FORWARD -j ACCEPT", "[0:0] -I FORWARD -j DROP",
				"-AFORWARD -j DROP", "-t nat -A FORWARD -j DROP", "iptables -I FORWARD -j DROP", "hello world",
			},
			"nat": {"-X", "hello world"},
		} {
			for _, line := range lines {
				in := inSave(table, line)
				if line == "hello world" {
					in[len(in)-1].tolerated = "a sentence between tables is of none of them"
				}
				out = append(out, in...)
			}
		}
		return append(out, alien{what: "words after a target", put: rightAfter("-j RETURN", " hello")})
	case snapshot.NFTFile:
		if fixture != "nftables" {
			return nil
		}
		proxy := `"family": "ip", "table": "kube-proxy"`
		return []alien{
			{what: "text after it", put: atEnd("hello")},
			{what: "an object without a table", put: element(`{"hello":{"world":1}}`)},
			{what: "an object of a table", put: element(`{"hello":{` + proxy + `,"name":"x"}}`)},
			{what: "an element of a set by itself", put: element(`{"element":{` + proxy + `,"name":"cluster-ips","elem":["1.2.3.4"]}}`)},
			{what: "a string as an object", put: element(`"hello"`)},
			{what: "a member of a table", put: rightAfter(`{"table": {"family": "ip", "name": "kube-proxy"`, `,"hello":1`)},
			{what: "a member of a chain", put: rightAfter(`{"chain": {`+proxy, `,"hello":1`)},
			{what: "a member of a rule", put: rightAfter(`{"rule": {`+proxy, `,"hello":1`)},
			{what: "a member of a set", put: func(data string) string {
				return strings.Replace(data, `{"set": {"family": "ip", `, `{"set": {"hello":1,"family": "ip", `, 1)
			}},
			{what: "a member of a map", put: func(data string) string {
				return strings.Replace(data, `{"map": {"family": "ip", `, `{"map": {"hello":1,"family": "ip", `, 1)
			}},
			{what: "a hook", put: func(data string) string {
				return strings.Replace(data, `"hook": "prerouting"`, `"hook": "hello"`, 1)
			}},
			{what: "a statement", put: element(`{"table":{"family":"ip","name":"t"}},` +
				`{"chain":{"family":"ip","table":"t","name":"c","type":"filter","hook":"prerouting","prio":0,"policy":"accept"}},` +
				`{"rule":{"family":"ip","table":"t","chain":"c","expr":[{"hello":{"world":1}}]}}`)},
			{what: "a member of a statement", put: element(`{"table":{"family":"ip","name":"t"}},` +
				`{"chain":{"family":"ip","table":"t","name":"c","type":"filter","hook":"prerouting","prio":0,"policy":"accept"}},` +
				`{"rule":{"family":"ip","table":"t","chain":"c","expr":[{"match":{"hello":1,"op":"==","left":{"meta":{"key":"l4proto"}},` +
				`"right":"icmp"}},{"drop":null}]}}`)},
			{what: "a member beside the list", put: field(`"hello":1`), tolerated: "nft prints one list, and all is in it"},
		}
	case snapshot.IPSetFile, snapshot.IPVSFile:
		if fixture != "ipvs" {
			return nil
		}
		return append(slices.Clone(anyText), map[string][]alien{
			snapshot.IPSetFile: {
				{what: "an option of a set", put: rightAfter("create KUBE-LOOP-BACK hash:ip,port,ip", " hello 5")},
				{what: "a type of a set", put: func(data string) string { return strings.Replace(data, " hash:", " hello:", 1) }},
				{what: "an option of an entry", put: atEnd("add KUBE-CLUSTER-IP 10.96.0.1,tcp:443 hello")},
				{what: "a command", put: atEnd("del KUBE-CLUSTER-IP 10.96.0.1,tcp:443")},
			},
			snapshot.IPVSFile: {
				{what: "an option of a server", put: atEnd("-A -t 192.0.2.1:80 -s rr --hello")},
				{what: "a command", put: atEnd("-D -t 10.96.0.1:443")},
			},
		}[file]...)
	}
	if fixture != "iptables" || file == v6 || file == snapshot.IPVSFile || file == snapshot.UnreadFile {
		return nil
	}
	switch {
	case file == snapshot.VersionsFile:
		return tolerating(anyText, forPeople)
	case file == snapshot.MetricsFile:
		return append(tolerating(anyText[:2], anyMetric), anyText[2])
	case strings.HasPrefix(strings.TrimSpace(string(data)), "["):
		out := slices.Clone(anyList)
		if file == snapshot.RuleFile || file == snapshot.Rule6File {
			out[len(out)-1].tolerated = "" // a selector that is not known decides whom a rule is for
		}
		return out
	case strings.HasPrefix(strings.TrimSpace(string(data)), "{"):
		return anyObject
	}
	return anyText
}

// TestNothingIsSkippedSilently: nothing of a file is skipped because no reader knows it, without a word.
func TestNothingIsSkippedSilently(t *testing.T) {
	testutil.Long(t)
	tried := map[string]bool{}
	for _, fixture := range []string{"iptables", "nftables", "ipvs"} {
		w := openCaptured(t, fixture)
		w.intact()
		w.files[snapshot.EbtablesFile] = []byte("ebtables filter FORWARD 1 rules\n")
		w.files[snapshot.WireGuardFile] = []byte("interface: wg0\n  public key: abc\n  listening port: 51820\n")
		for _, file := range slices.Sorted(maps.Keys(w.files)) {
			for _, a := range aliens(fixture, file, w.files[file]) {
				tried[file] = true
				o := &capturedNode{t, w.cluster, maps.Clone(w.files)}
				o.files[file] = []byte(a.put(string(w.files[file])))
				if bytes.Equal(o.files[file], w.files[file]) {
					t.Errorf("%s %s: %s: it changes nothing", fixture, file, a.what)
					continue
				}
				r := o.run()
				noticed := r.Error != "" || namesFile(&r, file) || slices.ContainsFunc(r.Paths, func(p report.Path) bool {
					return p.Verdict == report.Unknown
				})
				if noticed == (a.tolerated != "") {
					t.Errorf("%s %s: %s: noticed is %t, tolerated as %q: %s", fixture, file, a.what, noticed, a.tolerated, r.Error)
				}
			}
		}
	}
	for _, file := range snapshot.NodeFiles {
		if !tried[file] && untried[file] == "" {
			t.Errorf("%s is not tried", file)
		}
	}
}

// untried are the files of which no alien is tried here, with the reason.
var untried = map[string]string{
	snapshot.IPTablesNFTFile: sameReader, snapshot.IPTablesLegacyFile: sameReader, snapshot.IP6TablesFile: sameReader,
	snapshot.IP6TablesNFTFile: sameReader, snapshot.IP6TablesLegacyFile: sameReader,
	snapshot.UnreadFile: "it is a list of the other files",
}

const sameReader = "it has the reader of iptables-save.txt"
