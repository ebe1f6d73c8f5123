// SPDX-License-Identifier: Apache-2.0

package workflows_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// made says for each check of SECURITY.md by which command of the release that which it checks is made.
var made = map[string]string{
	"cosign verify ": "cosign sign --yes",
	"cosign verify-blob ": "cosign sign-blob --yes --bundle dist/release/checksums.txt.sigstore.json " +
		"dist/release/checksums.txt",
	"cosign verify-attestation --type slsaprovenance1 ": "cosign attest --yes --type slsaprovenance1 --predicate",
	"cosign verify-attestation --type spdxjson ":        "cosign attest --yes --type spdxjson --predicate",
	"gh attestation verify ":                            "subject-checksums: dist/release/checksums.txt",
	"sha256sum ":                                        "hack/release-assets.sh",
}

// What SECURITY.md has people check is made by a release and checked there, before it is published; and nothing is made
// that it does not tell of.
func TestAReleaseIsWhatSecuritySays(t *testing.T) {
	text, err := os.ReadFile(root + "SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Checking a release\n")
	if !found {
		t.Fatal("SECURITY.md has no section on checking a release")
	}
	workflow := workflows(t)["release.yaml"]
	publish := strings.Index(workflow, "gh release create")
	if publish < 0 {
		t.Fatal("the workflow publishes nothing")
	}
	var checks []string
	for _, line := range regexp.MustCompile(`(?m)^(cosign|gh|sha256sum) .*$`).FindAllString(section, -1) {
		known := false
		for check, command := range made {
			if !strings.HasPrefix(line, check) {
				continue
			}
			known, checks = true, append(checks, check)
			at, checked := strings.Index(workflow, command), strings.Index(workflow, check)
			if at < 0 || at > publish {
				t.Errorf("SECURITY.md has people run %q, and no release runs %q before it is published", line, command)
			}
			if checked < at || checked > publish {
				t.Errorf("no release is checked by %q before it is published", check)
			}
		}
		if !known {
			t.Errorf("what makes that which %q checks?", line)
		}
	}
	for check := range made {
		if !slices.Contains(checks, check) {
			t.Errorf("SECURITY.md does not say %q", check)
		}
	}
}

// step is one of a job.
type step struct {
	Uses string            `json:"uses"`
	Run  string            `json:"run"`
	Env  map[string]string `json:"env"`
}

// The image is pulled as anybody pulls it: by its digest, before there is a credential, and before anything is signed
// or published.
func TestTheImageIsPulledWithoutCredentials(t *testing.T) {
	var w struct {
		Jobs map[string]struct {
			Permissions map[string]string `json:"permissions"`
			Env         map[string]string `json:"env"`
			Steps       []step            `json:"steps"`
		} `json:"jobs"`
	}
	if err := yaml.Unmarshal([]byte(workflows(t)["release.yaml"]), &w); err != nil {
		t.Fatal(err)
	}
	job := w.Jobs["release"]
	pull := slices.IndexFunc(job.Steps, func(s step) bool {
		return strings.Contains(s.Run, `docker pull --quiet --platform "linux/$arch" "$REFERENCE"`)
	})
	if pull < 0 {
		t.Fatal("the image is never pulled")
	}
	if s := job.Steps[pull]; !strings.Contains(s.Run, `DOCKER_CONFIG="$(mktemp -d)"`) || len(s.Env) > 0 {
		t.Errorf("it is pulled with the settings of the machine: %+v", s)
	}
	if job.Env["REFERENCE"] != "${{ needs.image.outputs.reference }}" {
		t.Errorf("what is pulled is %s, not what was pushed", job.Env["REFERENCE"])
	}
	for i, s := range job.Steps {
		logs := strings.HasPrefix(s.Uses, "docker/login-action@") || strings.Contains(s.Run, "docker login") ||
			strings.Contains(s.Run, "cosign ") || strings.Contains(s.Run, "gh release")
		if logs && i < pull {
			t.Errorf("step %d comes before the image is pulled without credentials: %s%s", i, s.Uses, s.Run)
		}
	}
	// Who can sign as the project are those steps alone that do.
	for name, j := range w.Jobs {
		if j.Permissions["id-token"] != "" && name != "release" {
			t.Errorf("job %s can sign", name)
		}
	}
	for _, s := range job.Steps {
		if strings.Contains(s.Uses, "krew-release-bot") || strings.Contains(s.Uses, "sbom-action") {
			t.Errorf("%s runs what it does not pin, and can sign", s.Uses)
		}
	}
}

// Only what checksums.txt lists is published, with its signature.
func TestOnlyWhatIsSignedIsPublished(t *testing.T) {
	workflow := workflows(t)["release.yaml"]
	for _, m := range regexp.MustCompile(`gh release (create|upload|edit) .*`).FindAllString(workflow, -1) {
		if !strings.HasPrefix(m, "gh release create ") || !strings.HasSuffix(m, " dist/release/*") ||
			strings.Count(m, "dist/") != 1 {
			t.Errorf("what does %q publish?", m)
		}
	}
	if !strings.Contains(workflow, "sha256sum --strict --check checksums.txt") {
		t.Error("nothing compares the files with their checksums")
	}
	config, err := os.ReadFile(root + ".goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(config), "\nrelease:\n  disable: true\n") {
		t.Error("goreleaser publishes, too")
	}
}
