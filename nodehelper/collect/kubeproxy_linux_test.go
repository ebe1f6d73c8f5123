// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/process"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// asProxy is the environment variable that makes a process of this test serve at an address as kube-proxy does.
const asProxy = "SVCPROXY_TEST_PROXY"

// TestMain is also what runs as kube-proxy.
func TestMain(m *testing.M) {
	at := os.Getenv(asProxy)
	if at == "" {
		m.Run()
		return
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stdout, "ready")
	server := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(answer)}
	_ = server.Serve(l)
}

// secret is what must not be repeated.
const secret = "s3cr3t-of-another"

func answer(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/metrics":
		fmt.Fprint(w, "kubeproxy 1\n")
	case "/healthz":
		http.Error(w, "sick", http.StatusServiceUnavailable)
	case "/configz":
		fmt.Fprint(
			w,
			`{"kubeproxy.config.k8s.io": {"Mode": "nftables", "ClientConnection": {"Kubeconfig": "`+secret+`"}}, "x": "`+secret+`"}`,
		)
	case "/redirect":
		http.Redirect(w, r, "/metrics?"+secret, http.StatusFound)
	case "/endless":
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	case "/garbage":
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			fmt.Fprint(c, secret+"\r\n\r\n")
			c.Close()
		}
	default:
		http.Error(w, secret, http.StatusNotFound)
	}
}

// isolate runs the rest of a test where its processes are alone.
func isolate(t *testing.T) bool {
	t.Helper()
	if !testutil.IsolateProcesses(t, "ip") {
		return false
	}
	testutil.Run(t, "", "ip", "link", "set", "lo", "up")
	return true
}

// proxyAt starts a kube-proxy that serves at an address, with a command line, as a user, and finds it.
func proxyAt(t *testing.T, at string, user uint32, args ...string) (*process.Process, []process.Named) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "collect-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "kube-proxy")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), asProxy+"="+at)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	testutil.Ready(t, cmd)
	found, named, err := process.Find(proxies)
	if err != nil {
		t.Fatal(err)
	}
	p := proxyOf(found)
	if p != nil {
		t.Cleanup(p.Close)
	}
	return p, named
}

// kube-proxy answers where its command line and configuration say.
func TestKubeProxyAddresses(t *testing.T) {
	for _, tt := range []struct {
		args          []string
		metrics, live string
	}{
		{nil, "127.0.0.1:10249", "127.0.0.1:10256"},
		{
			[]string{"--metrics-bind-address=0.0.0.0:1", "--healthz-bind-address", "10.0.0.1"},
			"invalid AddrPort", "10.0.0.1:10256",
		},
		{[]string{"--metrics-bind-address=[::1]:5", "--healthz-bind-address=:7"}, "[::1]:5", "127.0.0.1:10256"},
		{[]string{"--metrics-bind-address="}, "127.0.0.1:10249", "127.0.0.1:10256"},
		{[]string{"--metrics-bind-address=example.org:80"}, "127.0.0.1:10249", "127.0.0.1:10256"},
	} {
		p := &process.Process{Args: append([]string{"kube-proxy"}, tt.args...)}
		m := netip.AddrPortFrom(metricsAddress.port(p)).String()
		l := netip.AddrPortFrom(healthAddress.port(p)).String()
		if m != tt.metrics || l != tt.live {
			t.Errorf("%v: %s, %s", tt.args, m, l)
		}
	}
}

// Of kube-proxy's command line only what decides what is programmed is read.
func TestFlagsOfKubeProxy(t *testing.T) {
	told := &reader{proxy: &process.Process{Program: "kube-proxy", Args: []string{
		"/x/kube-proxy", "--proxy-mode=ipvs", "--cluster-cidr", "10.1.0.0/16", "--kubeconfig=/secret", "--ipvs-scheduler=lc",
	}}}
	if data, err := readProxyConfig(t.Context(), told); !errors.Is(err, errAbsent) {
		t.Errorf("a file that --config does not name: %s, %v", data, err)
	}
	data, err := readFlags(t.Context(), told)
	if want := "kube-proxy\n--proxy-mode=ipvs\n--cluster-cidr=10.1.0.0/16\n--ipvs-scheduler=lc\n"; err != nil ||
		string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
	told.proxy.Args = []string{"kube-proxy", "--hostname-override=a\x1b[31mb"}
	if data, err = readFlags(t.Context(), told); err == nil {
		t.Errorf("an escape sequence of a command line was taken: %q", data)
	}
}

// The file of --config is read within kube-proxy's root, and kept as the fields of a configuration alone.
func TestConfigOfKubeProxy(t *testing.T) {
	if !isolate(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"+
		"metricsBindAddress: 0.0.0.0:9\nmode: nftables\nclientConnection: {kubeconfig: "+secret+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, _ := proxyAt(t, "127.0.0.1:9", 0, "--config="+file)
	data, err := readProxyConfig(t.Context(), &reader{proxy: p})
	if want := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" +
		"metricsBindAddress: 0.0.0.0:9\nmode: nftables\n"; err != nil || string(data) != want {
		t.Errorf("%q, %v", data, err)
	}
	if at, err := metricsAddress.socket(p); err != nil || at.String() != "127.0.0.1:9" {
		t.Errorf("%s, %v", at, err)
	}
	for _, name := range []string{
		"/etc/shadow", "../../../../../etc/shadow", "/proc/self/root/etc/shadow", "/does/not/exist", "/dev/zero",
	} {
		q := *p
		q.Args = []string{"kube-proxy", "--config=" + name}
		if data, err := readProxyConfig(t.Context(), &reader{proxy: &q}); err == nil || data != nil ||
			strings.Contains(err.Error(), "root:") {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

// kube-proxy is asked at its own sockets alone, and of an answer that is an error nothing is repeated.
func TestEndpoint(t *testing.T) {
	if !isolate(t) {
		return
	}
	p, _ := proxyAt(t, "127.0.0.1:10249", 0, "--healthz-bind-address=127.0.0.1:10249")
	r := &reader{proxy: p}
	for _, tt := range []struct {
		at               address
		path, want, fail string
	}{
		{metricsAddress, "/metrics", "kubeproxy 1\n", ""},
		{healthAddress, "/healthz", "sick\n", ""},
		{metricsAddress, "/healthz", "", "kube-proxy answers /healthz with status 503"},
		{metricsAddress, configz, `{"kubeproxy.config.k8s.io":{"mode":"nftables"}}`, ""},
		{metricsAddress, "/none", "", "kube-proxy answers /none with status 404"},
		{metricsAddress, "/redirect", "", "kube-proxy answers /redirect with status 302"},
		{metricsAddress, "/garbage", "", "does not answer at 127.0.0.1:10249: " + errNoHTTP.Error()},
		{metricsAddress, "/endless", "", "is larger than"},
	} {
		data, err := endpoint(tt.at, tt.path)(t.Context(), r)
		if string(data) != tt.want || tt.fail == "" && err != nil ||
			tt.fail != "" && (err == nil || !strings.Contains(err.Error(), tt.fail)) ||
			err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %q, %v", tt.path, data, err)
		}
	}
}

// Nobody else is asked in kube-proxy's place: not the host that its command line names, not who listens at its port.
func TestNoOneElseIsAsked(t *testing.T) {
	if !isolate(t) {
		return
	}
	testutil.Run(t, "", "ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
	var asked atomic.Int32
	for _, at := range []string{"127.0.0.1:10249", "192.0.2.1:10249", "127.0.0.1:10256", "192.0.2.1:80"} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				asked.Add(1)
				c.Close()
			}
		}()
	}
	p, _ := proxyAt(t, "127.0.0.1:7", 0)
	for _, args := range [][]string{
		nil,
		{"--metrics-bind-address=192.0.2.1:80"},
		{"--metrics-bind-address=198.51.100.1:10249"},
		{"--metrics-bind-address=0.0.0.0:10249"},
		{"--metrics-bind-address=192.0.2.1:7"},
	} {
		q := *p
		q.Args = append([]string{"kube-proxy"}, args...)
		data, err := endpoint(metricsAddress, "/metrics")(t.Context(), &reader{proxy: &q})
		if err == nil || !strings.Contains(err.Error(), "has no socket of its own at TCP port") {
			t.Errorf("%v: %q, %v", args, data, err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("others were asked %d times", n)
	}
}

// A user's process under kube-proxy's name is not asked, its files are not read, and it is named with the reason.
func TestImpostorIsLeftOut(t *testing.T) {
	if !isolate(t) {
		return
	}
	const nobody = 65534
	p, named := proxyAt(t, "127.0.0.1:10249", nobody, "--config=/etc/shadow", "--proxy-mode=ipvs")
	if p != nil || len(named) != 1 || named[0].Name != "kube-proxy" {
		t.Fatalf("found %v, named %v", p, named)
	}
	r := &reader{named: named}
	for name, read := range map[string]func() ([]byte, error){
		"metrics": func() ([]byte, error) { return endpoint(metricsAddress, "/metrics")(t.Context(), r) },
		"config":  func() ([]byte, error) { return readProxyConfig(t.Context(), r) },
	} {
		data, err := read()
		if want := fmt.Sprintf("process %d is not taken for it, it runs as user 65534", named[0].PID); data != nil ||
			err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if data, err := readFlags(t.Context(), r); !errors.Is(err, errAbsent) {
		t.Errorf("flags: %q, %v", data, err)
	}
	data, err := readProcesses(t.Context(), r)
	if want := fmt.Sprintf("# %d kube-proxy: not taken for it, it runs as user 65534", named[0].PID); err != nil ||
		!strings.HasPrefix(string(data), want) {
		t.Errorf("processes: %q, %v", data, err)
	}
}

// A helper whose pod has not the node's PID namespace reads what does not depend on processes, and says of each file
// that does why it is not read.
func TestFewRightsOfAHelper(t *testing.T) {
	if !isolate(t) { // the test is process 1, as such a helper is
		return
	}
	files := []string{
		snapshot.AddrFile, snapshot.ProcessesFile, snapshot.FlagsFile, snapshot.ProxyConfigFile, snapshot.ConfigzFile,
		snapshot.ProxyModeFile,
	}
	got := map[string]string{}
	if err := Collect(t.Context(), Options{Root: t.TempDir(), Files: files}, func(f File) error {
		got[f.Name] = f.Unread
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for file, unread := range got {
		is := strings.Contains(unread, "its pod does not use the node's PID namespace")
		if is == (file == snapshot.AddrFile) {
			t.Errorf("%s: %q", file, unread)
		}
	}
	if len(got) != len(files)-1 { // there certainly are no flags
		t.Errorf("%v", got)
	}
}

// However a user's processes call themselves, each file of the node is what it is without them, but for the comments of
// processes.txt; and a real kube-proxy beside them is found as without them.
func TestImpostorsChangeNoFile(t *testing.T) {
	if !isolate(t) {
		return
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "collect-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	start := func(path string, argv ...string) {
		cmd := exec.CommandContext(t.Context(), path)
		cmd.Args = argv
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	proxyAt(t, "127.0.0.1:10249", 0)
	files := []string{
		snapshot.ProcessesFile, snapshot.FlagsFile, snapshot.ProxyConfigFile, snapshot.ConfigzFile, snapshot.MetricsFile,
		snapshot.ProxyModeFile, snapshot.HealthzFile, snapshot.LivezFile, snapshot.ListenFile, snapshot.VersionsFile,
	}
	collected := func() map[string]string {
		r := &reader{Options: Options{Root: "/", Files: files}, kernel: newKernel("/"), roots: programRoots("/")}
		if r.processes, r.named, err = process.Find(programs); err != nil {
			t.Fatal(err)
		}
		r.proxy = proxyOf(r.processes)
		got := map[string]string{}
		if err := r.read(t.Context(), others, func(f File) error {
			lines := slices.DeleteFunc(strings.SplitAfter(string(f.Data), "\n"), func(l string) bool {
				return strings.HasPrefix(l, "# ")
			})
			got[f.Name] = strings.Join(lines, "") + f.Unread
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, p := range r.processes {
			p.Close()
		}
		return got
	}
	before := collected()
	for _, name := range snapshot.ServiceProcesses {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, program, 0o755); err != nil {
			t.Fatal(err)
		}
		start(path, name, "600")
		start(path, "/usr/local/bin/"+name, "600")
		start(sleep, "/opt/"+name, "600")
		start(sleep, name, "600")
		start("/bin/sh", "sh", "-c", "printf "+name+" >/proc/$$/comm; sleep 600; :")
		removed := filepath.Join(dir, "removed", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(removed), 0o755), os.WriteFile(removed, program, 0o755)); err != nil {
			t.Fatal(err)
		}
		start(removed, name, "600")
		if err := os.Remove(removed); err != nil {
			t.Fatal(err)
		}
	}
	after := collected()
	if !maps.Equal(before, after) {
		t.Errorf("without them\n%q\nwith them\n%q", before, after)
	}
	if _, named, err := process.Find(programs); err != nil || len(named) == 0 {
		t.Errorf("they are not named: %v, %v", named, err)
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
		{
			"fields that decide nothing here are left out", "var/lib/kube-proxy/config.conf",
			config + "clientConnection: {kubeconfig: /secret}\n", config,
		},
		{"too large", "var/lib/kube-proxy/config.conf", config + strings.Repeat("#", bounds.Config), ""},
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
