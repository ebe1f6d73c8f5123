// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files again")

func TestPod(t *testing.T) {
	for name, o := range map[string]Options{
		"privileged": {Run: "run1", Namespace: "kube-system", Build: "v1.2.3"},
		"netadmin": {
			Run: "run1", Namespace: "tools", Build: "v1.2.3", Image: "registry.example/nodehelper@sha256:0123",
			PullPolicy: corev1.PullAlways,
			PullSecret: "regcred", Profile: ProfileNetadmin, Timeout: 10 * time.Second, Lifetime: time.Minute, Keep: true,
		},
		"program": {Run: "run1", Namespace: "kube-system", Build: "v1.2.3", Hold: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := yaml.Marshal(Pod(o, "node1"))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "pod."+name+".yaml")
			if *update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s differs (go test -update writes it again); got:\n%s", file, got)
			}
		})
	}
}

func TestDefaultImage(t *testing.T) {
	for build, want := range map[string]string{
		"v1.2.3":                           ":v1.2.3",
		"v1.2.3-rc.1":                      ":v1.2.3-rc.1",
		"v1.2.3-4-gabcdef0":                ":dev",
		"v0.0.0-20260101000000-0123+dirty": ":dev",
		"devel":                            ":dev",
		"":                                 ":dev",
	} {
		if got := DefaultImage(build); got != Repository+want {
			t.Errorf("%s: %s", build, got)
		}
	}
	Digest = "sha256:0123"
	defer func() { Digest = "" }()
	for build, want := range map[string]string{"v1.2.3": ":v1.2.3@sha256:0123", "v1.2.3-4-gabcdef0": ":dev"} {
		if got := DefaultImage(build); got != Repository+want {
			t.Errorf("%s with a digest: %s", build, got)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	good := Options{Run: "run1", Namespace: "tools"}
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no run": {
			func(o *Options) { o.Run = "" }, `"" cannot be the id of a run: it has to be the value of a label`,
		},
		"a run that selects": {
			func(o *Options) { o.Run = "a,b!=c" }, `"a,b!=c" cannot be the id of a run: it has to be the value of a label`,
		},
		"an unknown profile": {
			func(o *Options) { o.Profile = "root" }, `"root" is not a security profile: use privileged or netadmin`,
		},
		"an unknown policy": {
			func(o *Options) { o.PullPolicy = "Sometimes" },
			`"Sometimes" is not an image pull policy: use Always, IfNotPresent or Never`,
		},
		"an image with spaces": {func(o *Options) { o.Image = "a " }, `"a " is not a valid name of an image`},
		"a short timeout": {
			func(o *Options) { o.Timeout = time.Millisecond }, "a timeout of 1ms is too short: give at least 1s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			c.change(&o)
			_, err := New(o)
			expect(t, err, c.want)
		})
	}
	if a, b := NewRun(), NewRun(); a == b {
		t.Errorf("two runs are both %s", a)
	}
}
