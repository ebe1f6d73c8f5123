// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// kube-proxy is found where its command line and configuration say.
func TestKubeProxyAddresses(t *testing.T) {
	for _, tt := range []struct {
		args          []string
		metrics, live string
	}{
		{nil, "127.0.0.1:10249", "127.0.0.1:10256"},
		{[]string{"--metrics-bind-address=0.0.0.0:1", "--healthz-bind-address", "10.0.0.1"}, "127.0.0.1:1", "10.0.0.1:10256"},
		{[]string{"--metrics-bind-address=[::]:5", "--healthz-bind-address=:7"}, "[::1]:5", "127.0.0.1:10256"},
		{[]string{"--metrics-bind-address="}, "127.0.0.1:10249", "127.0.0.1:10256"},
	} {
		k := &kubeProxy{pid: "self", args: tt.args}
		if m, l := metricsAddress.of(k), healthAddress.of(k); m != tt.metrics || l != tt.live {
			t.Errorf("%v: %s, %s", tt.args, m, l)
		}
	}
	if got := metricsAddress.of(nil); got != "127.0.0.1:10249" {
		t.Error(got)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("metricsBindAddress: 0.0.0.0:9\nmode: nftables\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := &kubeProxy{pid: "self", args: []string{"--config=" + file}}
	if got := metricsAddress.of(k); got != "127.0.0.1:9" {
		t.Error(got)
	}
	data, err := readProxyConfig(t.Context(), &reader{proxy: k})
	if err != nil || !strings.Contains(string(data), "mode: nftables") {
		t.Errorf("%s, %v", data, err)
	}
	told := &reader{proxy: &kubeProxy{
		pid:  "self",
		args: []string{"--proxy-mode=ipvs", "--cluster-cidr", "10.1.0.0/16", "--kubeconfig=/secret", "--ipvs-scheduler=lc"},
	}}
	if data, err = readProxyConfig(t.Context(), told); !errors.Is(err, errAbsent) {
		t.Errorf("a file that --config does not name: %s, %v", data, err)
	}
	data, err = readFlags(t.Context(), told)
	if want := "kube-proxy\n--proxy-mode=ipvs\n--cluster-cidr=10.1.0.0/16\n--ipvs-scheduler=lc\n"; err != nil ||
		string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
	told.proxy.args = []string{"--hostname-override=a\x1b[31mb"}
	if data, err = readFlags(t.Context(), told); err == nil {
		t.Errorf("an escape sequence of a command line was taken: %q", data)
	}
	_, err = readProxyConfig(t.Context(), &reader{
		proxy: &kubeProxy{pid: "self", args: []string{"--config=/does/not/exist"}},
	})
	if err == nil {
		t.Error("a file that there is not was read")
	}
}

func TestEndpoint(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			fmt.Fprint(w, "kubeproxy 1\n")
		case "/healthz":
			http.Error(w, "sick", http.StatusServiceUnavailable)
		default:
			http.NotFound(w, r)
		}
	})
	server := http.Server{ReadHeaderTimeout: time.Minute, Handler: handler}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	at := l.Addr().String()
	r := &reader{
		proxy: &kubeProxy{pid: "7", args: []string{"--metrics-bind-address=" + at, "--healthz-bind-address=" + at}},
	}
	if data, err := endpoint(metricsAddress, "/metrics")(t.Context(), r); err != nil || string(data) != "kubeproxy 1\n" {
		t.Errorf("%q, %v", data, err)
	}
	if data, err := endpoint(healthAddress, "/healthz")(t.Context(), r); err != nil || string(data) != "sick\n" {
		t.Errorf("%q, %v", data, err)
	}
	_, err = endpoint(metricsAddress, "/configz")(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "kube-proxy answers /configz with 404 Not Found: 404 page not found") {
		t.Error(err)
	}
	server.Close()
	_, err = endpoint(metricsAddress, "/metrics")(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "kube-proxy (process 7) does not answer at "+at) {
		t.Error(err)
	}
}

// A program that kube-proxy has just started still bears its name: the file that its command line names was "not
// there", for the process was gone.
func TestKubeProxyIsNotAProgramThatItStarts(t *testing.T) {
	parents := map[string]string{"1582": "900", "1583": "1582", "900": "1", "77": "1"}
	parent := func(pid string) string { return parents[pid] }
	for _, tt := range []struct{ found, want string }{
		{"1582 1583 900", "900"}, {"900", "900"}, {"1582", "1582"}, {"", ""}, {"77 900", "77"},
	} {
		var found []*kubeProxy
		for pid := range strings.FieldsSeq(tt.found) {
			found = append(found, &kubeProxy{pid: pid})
		}
		got := ""
		if k := starter(found, parent); k != nil {
			got = k.pid
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.found, got, tt.want)
		}
	}
	if got := parentOf(strconv.Itoa(os.Getpid())); got != strconv.Itoa(os.Getppid()) {
		t.Errorf("parent %q, want %d", got, os.Getppid())
	}
}

// Where no kube-proxy runs its configuration is read from the file that an installer has put on the node; what is no
// such configuration, and what leads out of the node's file system, is passed over.
func TestConfigOfKubeProxyThatDoesNotRun(t *testing.T) {
	const config = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"
	outside := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(outside, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file, content, want string
	}{
		{"kubeadm's name", "var/lib/kube-proxy/config.conf", config, config},
		{"a service of the node", "var/lib/kube-proxy/kube-proxy-config.yaml", config, config},
		{"in /etc", "etc/kubernetes/kube-proxy-config.yaml", config, config},
		{"another kind", "var/lib/kube-proxy/config.conf", "kind: KubeletConfiguration\n", ""},
		{"too large", "var/lib/kube-proxy/config.conf", config + strings.Repeat("#", configSize), ""},
		{"no file", "", "", ""},
		{"a link out of it", "link", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.MkdirAll(filepath.Join(root, "var", "lib", "kube-proxy"), 0o700); err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(root, tt.file)
			if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
				t.Fatal(err)
			}
			var err error
			switch tt.file {
			case "":
			case "link":
				err = os.Symlink(outside, filepath.Join(root, configFiles[0]))
			default:
				err = os.WriteFile(at, []byte(tt.content), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := readProxyConfig(t.Context(), &reader{Options: Options{Root: root}})
			if string(data) != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, %v", data[:min(len(data), 100)], err)
			}
		})
	}
}
