// SPDX-License-Identifier: Apache-2.0

package workflows_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Nightly the oracle runs with two patch releases, or more, of each minor version that the expectation knows; CI's
// versions are among them, and the first of each list is the one that go.mod has. Each file that takes the place of
// another one by version is chosen by oracle.sh.
func TestOracleVersions(t *testing.T) {
	const oldest, newest = 28, 37
	s := readScript(t)
	list := func(name string) []string {
		m := regexp.MustCompile(`(?m)^` + name + `=\(([a-z0-9. ]+)\)$`).FindStringSubmatch(s.text)
		if m == nil {
			t.Fatalf("hack/test.sh has no list %s", name)
		}
		return strings.Fields(m[1])
	}
	all := slices.Concat(list("oracle_new"), list("oracle_old"))
	patches := map[string]int{}
	for _, v := range all {
		patches[v[:strings.LastIndex(v, ".")]]++
	}
	for minor := oldest; minor <= newest; minor++ {
		if v := "v1." + strconv.Itoa(minor); patches[v] < 2 {
			t.Errorf("the nightly list has %d patch releases of %s", patches[v], v)
		}
	}
	ci := list("oracle_ci")
	for _, v := range ci {
		if !slices.Contains(all, v) {
			t.Errorf("the nightly list leaves out %s, which CI has", v)
		}
	}
	mod, err := os.ReadFile(root + "test/oracle/kubeproxy/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if all[0] != ci[0] || !strings.Contains(string(mod), "k8s.io/kubernetes "+ci[0]+"\n") {
		t.Errorf("the lists begin with %s and %s, and go.mod has another version", all[0], ci[0])
	}

	script, err := os.ReadFile(root + "test/oracle/oracle.sh")
	if err != nil {
		t.Fatal(err)
	}
	shapes, err := os.ReadDir(root + "test/oracle/kubeproxy/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, shape := range shapes {
		files, err := os.ReadDir(root + "test/oracle/kubeproxy/testdata/" + shape.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.Contains(string(script), f.Name()+"="+shape.Name()) {
				t.Errorf("oracle.sh does not choose %s of %s", f.Name(), shape.Name())
			}
		}
	}
}
