// SPDX-License-Identifier: Apache-2.0

package workflows_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// source is the part of a workflow by which somebody else's code gets into a run.
type source struct {
	Jobs map[string]struct {
		Uses      string         `json:"uses"`
		Container container      `json:"container"`
		Services  map[string]any `json:"services"`
		Steps     []struct {
			Uses string `json:"uses"`
			Run  string `json:"run"`
		} `json:"steps"`
	} `json:"jobs"`
}

// container is an image, or an object with one.
type container struct{ Image string }

func (c *container) UnmarshalJSON(data []byte) error {
	if err := yaml.Unmarshal(data, &c.Image); err == nil {
		return nil
	}
	var object struct {
		Image string `json:"image"`
	}
	err := yaml.Unmarshal(data, &object)
	c.Image = object.Image
	return err
}

var (
	pinnedAction = regexp.MustCompile(`^([\w.-]+/[\w./-]+@[0-9a-f]{40}|\./\.github/workflows/[\w.-]+)$`)
	pinnedImage  = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)
	// An image of a command is one by its digest, or the one that this run has built.
	runsImage = regexp.MustCompile(`\b(docker|podman|nerdctl|ctr)\s+(image\s+)?(run|pull|create)\b`)
	ofDigest  = regexp.MustCompile(`@sha256:[0-9a-f]{64}\b|"\$REFERENCE"`)
	// A script that is run as it comes is another one tomorrow.
	piped = regexp.MustCompile(`\b(curl|wget)\b[^;&]*\|\s*(sudo\s+)?(\w*/)*(env\s+)?(ba|da|z|k)?sh\b|` +
		`\b(ba|da|z)?sh\b[^|;&]*(<\(|"?\$\(|` + "`" + `)\s*(curl|wget)\b|\b(source|\.|eval)\s+"?(<\(|\$\()\s*(curl|wget)\b`)
	// Go's modules are compared with sum.golang.org, if they are of a version; that of golangci-lint is a variable.
	installs  = regexp.MustCompile(`\bgo (install|run)\s+(?:-\S+\s+)*(\S+@\S+)`)
	ofVersion = regexp.MustCompile(`@(v\d+\.\d+\.\d+|\$version")$`)
	// Nothing here is to be had from these without a list of digests.
	registries = regexp.MustCompile(`\b(npm (i|install|exec)|npx|pipx? install|gem install|cargo install|brew install)\b`)
)

// unpinned lists what a workflow runs and does not name by its digest.
func unpinned(text string) ([]string, error) {
	var w source
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		return nil, err
	}
	var out []string
	for name, j := range w.Jobs {
		if j.Uses != "" && !pinnedAction.MatchString(j.Uses) {
			out = append(out, name+": uses "+j.Uses)
		}
		if j.Container.Image != "" && !pinnedImage.MatchString(j.Container.Image) {
			out = append(out, name+": container "+j.Container.Image)
		}
		for service := range j.Services {
			out = append(out, name+": service "+service+", which this test does not know how to judge")
		}
		for _, s := range j.Steps {
			if strings.HasPrefix(s.Uses, "docker://") {
				if !pinnedImage.MatchString(s.Uses) {
					out = append(out, name+": uses "+s.Uses)
				}
			} else if s.Uses != "" && !pinnedAction.MatchString(s.Uses) {
				out = append(out, name+": uses "+s.Uses)
			}
			out = append(out, loose(name, s.Run)...)
		}
	}
	slices.Sort(out)
	return out, nil
}

// loose lists the commands of a script that run what they do not name by a digest or a version.
func loose(name, script string) []string {
	var out []string
	script = strings.ReplaceAll(script, "\\\n", " ")
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		bad := runsImage.MatchString(line) && !ofDigest.MatchString(line) || piped.MatchString(line) ||
			registries.MatchString(line)
		for _, m := range installs.FindAllStringSubmatch(line, -1) {
			bad = bad || !ofVersion.MatchString(m[2])
		}
		if bad {
			out = append(out, name+": "+line)
		}
	}
	return out
}

// What a workflow runs of others' is named by its digest, so that nobody who may move a tag or change a page gets into
// a run, and into a release.
func TestWorkflowsRunNothingUnpinned(t *testing.T) {
	for name, text := range workflows(t) {
		found, err := unpinned(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, f := range found {
			t.Errorf("%s: %s", name, f)
		}
	}
	// And what the workflows call.
	scripts := 0
	for _, pattern := range []string{"hack/*.sh", "test/*/*.sh", "test/*/lib/*.sh", "test/cluster/*", "test/vm/*"} {
		files, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil || !strings.HasPrefix(string(text), "#!") && filepath.Ext(f) != ".sh" {
				continue // a folder, or no script
			}
			scripts++
			for _, l := range loose(f, string(text)) {
				t.Error(l)
			}
		}
	}
	if scripts < 15 {
		t.Errorf("only %d scripts were found", scripts)
	}
}

// The test above finds each way to run what is not pinned.
func TestUnpinnedIsFound(t *testing.T) {
	const (
		sha    = "3d3c42e5aac5ba805825da76410c181273ba90b1"
		digest = "@sha256:f37a335e82bca302e955fa39f9dfe28f1be618f016f8a2b56318e5a5111afc26"
	)
	for job, bad := range map[string]bool{
		"uses: ./.github/workflows/test.yaml":                                   false,
		"uses: owner/repo/.github/workflows/x.yaml@v1":                          true,
		"container: debian:12.11":                                               true,
		"container: debian:12.11" + digest:                                      false,
		"container: {image: 'debian:12.11'}":                                    true,
		"container: {image: 'debian:12.11" + digest + "'}":                      false,
		"services: {db: {image: postgres}}":                                     true,
		"steps: [{uses: actions/checkout@v7}]":                                  true,
		"steps: [{uses: actions/checkout@main}]":                                true,
		"steps: [{uses: actions/checkout@3d3c42e}]":                             true,
		"steps: [{uses: actions/checkout@" + sha + "}]":                         false,
		"steps: [{uses: 'docker://alpine:3'}]":                                  true,
		"steps: [{uses: 'docker://alpine" + digest + "'}]":                      false,
		"steps: [{run: curl -fsSL https://x.example/i | sh}]":                   true,
		"steps: [{run: wget -qO- https://x.example/i | sudo bash -s -- -b /x}]": true,
		"steps: [{run: bash <(curl -s https://x.example/i)}]":                   true,
		"steps: [{run: 'sh -c \"$(curl -s https://x.example)\"'}]":              true,
		"steps: [{run: 'curl -fsSLO https://x.example/f; sh g'}]":               false,
		"steps: [{run: docker run --rm alpine true}]":                           true,
		"steps: [{run: docker run --rm alpine" + digest + " true}]":             false,
		"steps: [{run: 'docker pull \"$REFERENCE\"'}]":                          false,
		"steps: [{run: go install x.example/tool@latest}]":                      true,
		"steps: [{run: go install -trimpath x.example/tool@v1}]":                true,
		"steps: [{run: go install x.example/tool@v1.2.3}]":                      false,
		"steps: [{run: npx tool}]":                                              true,
		"steps: [{run: pip install tool}]":                                      true,
		"steps: [{run: apt-get install -y git}]":                                false,
	} {
		found, err := unpinned("jobs:\n  x:\n    " + job + "\n")
		if err != nil || (len(found) > 0) != bad {
			t.Errorf("%s: found %q, %v", job, found, err)
		}
	}
}
