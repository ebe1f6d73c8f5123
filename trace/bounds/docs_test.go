// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// rows are the table of docs/security.md, without the column of reasons.
func rows() [][2]string {
	count := func(n int) string {
		text := fmt.Sprint(n)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
		return text
	}
	return [][2]string{
		{"a file, uncompressed", Bytes(File)},
		{"a file that lists no rules, sets or connections", Bytes(SmallFile)},
		{"kube-proxy's configuration", Bytes(Config)},
		{"all files of a node, or of the cluster", Bytes(Node)},
		{"a line", Bytes(Line)},
		{"lines of a file; of `ipvsadm.txt`", count(Lines) + "; " + count(ServerLines)},
		{"depth of JSON", count(JSONDepth) + " levels"},
		{
			"elements of a JSON list; routes; rules of `ip rule`",
			count(JSONList) + "; " + count(Routes) + "; " + count(Policies),
		},
		{"values of a JSON file; objects in one of the cluster", count(JSONValues) + "; " + count(JSONObjects)},
		{"a YAML file of the cluster", Bytes(YAML) + ", " + count(YAMLValues) + " values"},
		{"objects of a kind", count(Objects)},
		{"an object, as JSON", Bytes(Object)},
		{"responses of the API server, together", Bytes(APIResponses)},
		{"objects that are listed, in memory; pods", Bytes(APIObjects) + "; " + Bytes(APIPods)},
		{
			"pages of a list; objects of a page; their fields",
			count(APIPages) + "; " + count(APIItems) + "; " + count(APIFields),
		},
		{"members of an archive, entries of a directory", count(Members)},
		{"nodes of a snapshot", count(Nodes)},
		{"compression of an archive, beyond " + Bytes(RatioFree), fmt.Sprintf("%d : 1", Ratio)},
		{"readings of an archive", count(Passes)},
		{"depth of a directory", count(Depth) + " levels"},
		{"files of a helper's answer", count(AnswerFiles)},
		{"progress messages of an answer", count(Progress)},
		{"bytes of an answer, as they are transferred", Bytes(Compressed)},
		{"time for reading a node", Call.String() + ", or `--timeout` where that is longer"},
		{"time for a request that changes a node or connects", Change.String() + ", or `--timeout` where that is longer"},
		{"nodes in memory as rules at once", count(Answers)},
		{"answers above " + Bytes(Held) + ", compressed, at once", count(Answers)},
		{"time for judging a node", Judge.String()},
		{"objects that an agent holds, in memory", Bytes(AgentObjects)},
		{"what judging a Service takes", count(ServiceWork) + " steps"},
		{"what judging all Services takes", count(Work) + " steps"},
		{"endpoints of all Services' ports while they are judged, in memory", Bytes(Endpoints)},
		{"other Services at one address and port that a path is compared with", count(Claimants)},
		{"labels and ports of pods that are compared for a namespace's selectors", count(Selecting)},
		{"a request to a helper", Bytes(Request) + ", " + count(RequestValues) + " values"},
		{"targets of `--live`; connections to each", count(ProbeTargets) + "; " + count(ProbeConnections)},
	}
}

// The limits are what docs/security.md says.
func TestDocsSayTheLimits(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows() {
		if row := "| " + r[0] + " | " + r[1] + " | "; !strings.Contains(string(page), row) {
			t.Errorf("docs/security.md lacks the row %s", row)
		}
	}
}
