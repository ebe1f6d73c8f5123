// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"slices"
	"strings"
	"testing"
)

// TestPickFlags: what decides on rules is taken, in all ways that pflag reads it, and nothing else is: the command
// line of k3s has the cluster's token.
func TestPickFlags(t *testing.T) {
	for _, tt := range []struct {
		name, program string
		args, want    []string
	}{
		{
			"a value behind = and behind a space", Process,
			[]string{"--cluster-cidr", "10.0.0.0/8", "-proxy-mode=ipvs", "--v=2"},
			[]string{"--cluster-cidr=10.0.0.0/8", "--proxy-mode=ipvs"},
		},
		{
			"a flag without a value does not take the next", Process,
			[]string{"--masquerade-all", "--proxy-mode", "ipvs"},
			[]string{"--masquerade-all=", "--proxy-mode=ipvs"},
		},
		{
			"others are left out, with their values", Process,
			[]string{"--kubeconfig", "/secret", "--master=https://x", "--hostname-override=n1"},
			[]string{"--hostname-override=n1"},
		},
		{"k3s", "k3s", []string{
			"server", "--token", "K10secret", "--cluster-cidr", "10.42.0.0/16", "--kube-proxy-arg=proxy-mode=ipvs",
			"--kube-proxy-arg", "masquerade-all", "--bind-address=10.0.0.1", "--kubelet-arg=feature-gates=A=true",
		}, []string{"--cluster-cidr=10.42.0.0/16", "--proxy-mode=ipvs", "--masquerade-all="}},
		{"an argument that ends early", "k3s-server", []string{"--kube-proxy-arg"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := PickFlags(tt.program, tt.args)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if _, err := ParseFlags([]byte(tt.program + "\n" + strings.Join(got, "\n") + "\n")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestParseFlags(t *testing.T) {
	f, err := ParseFlags([]byte("kube-proxy\r\n--proxy-mode=ipvs\r\n--cluster-cidr=10.0.0.0/8,fd00::/56\r\n" +
		"--masquerade-all=\r\n--iptables-masquerade-bit=15\r\n--nodeport-addresses=10.0.0.0/8\r\n--ipvs-scheduler=lc\r\n" +
		"--ipvs-strict-arp=true\r\n--feature-gates=A=true,B=false\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[Setting]string{
		DetectLocal: "ClusterCIDR 10.0.0.0/8,fd00::/56", MasqueradeAll: "true", MasqueradeBit: "15",
		NodePortRanges: "10.0.0.0/8", IPVSScheduler: "lc", StrictARP: "true", FeatureGates: "A=true,B=false",
		IPVSExcludeCIDRs: "none", LocalNodePorts: "true",
	}
	for s, text := range want {
		if got := f.Config.Text(s); got != text || !f.Tells(s) {
			t.Errorf("%s: got %q, want %q; told: %v", s, got, text, f.Tells(s))
		}
	}
	if f.Config.Mode != IPVS {
		t.Error(f.Config.Mode)
	}
}

// TestFlagsTell: kube-proxy's own command line settles also what it leaves out; that of k3s, which reads files of its
// own, does not; and with --config it settles nothing.
func TestFlagsTell(t *testing.T) {
	for _, tt := range []struct {
		data            string
		cluster, others bool
	}{
		{"kube-proxy\n", true, true},
		{"kube-proxy\n--config=/c\n--cluster-cidr=10.0.0.0/8\n", false, false},
		{"k3s\n--cluster-cidr=10.0.0.0/8\n", true, false},
		{"k3s\n", false, false},
	} {
		f, err := ParseFlags([]byte(tt.data))
		if err != nil {
			t.Fatal(err)
		}
		if f.Tells(DetectLocal) != tt.cluster || f.Tells(MasqueradeAll) != tt.others {
			t.Errorf("%q: %v, %v", tt.data, f.Tells(DetectLocal), f.Tells(MasqueradeAll))
		}
	}
}

func TestFlagsThatAreNone(t *testing.T) {
	for data, want := range map[string]string{
		"":                                    `line 1 is ""`,
		"bash\n":                              `line 1 is "bash"`,
		"kube-proxy\n--token=x\n":             "line 2: --token is not a flag",
		"kube-proxy\n--cluster-cidr=x\n":      `line 2: --cluster-cidr: "x" is not a CIDR`,
		"kube-proxy\n--masquerade-all=x\n":    "line 2: --masquerade-all",
		"kube-proxy\n--feature-gates=A\n":     "line 2: --feature-gates",
		"kube-proxy\n--bind-address=x\n":      `line 2: --bind-address: "x" is not an IP address`,
		"kube-proxy\n--detect-local-mode=x\n": `detectLocalMode is "x"`,
	} {
		if _, err := ParseFlags([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", data, err, want)
		}
	}
}

// FuzzFlags feeds the file of flags.
func FuzzFlags(f *testing.F) {
	f.Add([]byte("kube-proxy\n--cluster-cidr=10.0.0.0/8\n--masquerade-all=\n"))
	f.Add([]byte("k3s\n--proxy-mode=ipvs\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseFlags(data)
		if (c == nil) != (err != nil) {
			t.Error("flags and an error, or neither")
		}
	})
}
