// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// kubeProxy is kube-proxy's process.
type kubeProxy struct {
	pid  string
	args []string
}

// findKubeProxy finds the process; nil where there is none of that name (k3s and RKE2 have it in a process of their
// own).
func findKubeProxy() *kubeProxy {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []*kubeProxy
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		data, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
		if filepath.Base(args[0]) != proxyName || !sameNetwork(e.Name()) {
			continue
		}
		found = append(found, &kubeProxy{pid: e.Name(), args: args[1:]})
	}
	return starter(found, parentOf)
}

// ProxyPID returns the PID of kube-proxy, or of the program that contains it; "" where there is none. last is what it
// returned before: as long as that process runs no other is searched for.
func ProxyPID(last string) string {
	if last != "" {
		data, err := os.ReadFile("/proc/" + last + "/cmdline")
		name, _, _ := strings.Cut(string(data), "\x00")
		if name = filepath.Base(name); err == nil && (name == proxyName || slices.Contains(kubeproxy.Embedding, name)) {
			return last
		}
	}
	if k := findKubeProxy(); k != nil {
		return k.pid
	}
	if pid, _, _ := embeddingProcess(); pid != 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

// proxyName is the name of kube-proxy's program.
const proxyName = "kube-proxy"

// starter returns the first process that none of the others has started: a child of kube-proxy has its name until it
// executes another program, and may have ended a moment later.
func starter(found []*kubeProxy, parentOf func(pid string) string) *kubeProxy {
	for _, k := range found {
		parent := parentOf(k.pid)
		if !slices.ContainsFunc(found, func(o *kubeProxy) bool { return o.pid == parent }) {
			return k
		}
	}
	return nil
}

// parentOf returns the number of a process's parent; "" where the process is gone.
func parentOf(pid string) string {
	data, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(data), "\nPPid:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// sameNetwork tells whether a process is in this one's network namespace: on a machine with several nodes each has its
// own kube-proxy.
func sameNetwork(pid string) bool {
	// Not that of the process: its first thread may be in a pod's, to make a connection there.
	own, err := os.Readlink("/proc/thread-self/ns/net")
	theirs, err2 := os.Readlink("/proc/" + pid + "/ns/net")
	return err == nil && err2 == nil && own == theirs
}

func (k *kubeProxy) root() string { return "/proc/" + k.pid + "/root" }

// flag returns a flag of the command line; ok is false where it is not given.
func (k *kubeProxy) flag(name string) (value string, ok bool) {
	if k == nil {
		return "", false
	}
	for i, a := range k.args {
		a = strings.TrimLeft(a, "-")
		if a == name && i+1 < len(k.args) {
			value, ok = k.args[i+1], true
		} else if v, found := strings.CutPrefix(a, name+"="); found {
			value, ok = v, true
		}
	}
	return value, ok
}

// config returns the file that --config names; nil where there is none.
func (k *kubeProxy) config() ([]byte, error) {
	name, ok := k.flag("config")
	if !ok {
		return nil, nil
	}
	return readConfig(filepath.Join(k.root(), name))
}

// readConfig reads a file that kube-proxy's command line names, which may be anything: a device, a named pipe.
func readConfig(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", name))
	}
	data, err := io.ReadAll(io.LimitReader(f, bounds.Config+1))
	if err == nil && len(data) > bounds.Config {
		err = bounds.TooLarge(name, bounds.Config)
	}
	return data, err
}

// Where kube-proxy answers, unless it is told otherwise (pkg/proxy/apis/config/v1alpha1/defaults.go).
type address struct{ flag, field, standard string }

var (
	metricsAddress = address{"metrics-bind-address", "metricsBindAddress", "127.0.0.1:10249"}
	healthAddress  = address{"healthz-bind-address", "healthzBindAddress", "127.0.0.1:10256"}
)

// of returns where kube-proxy answers on this node.
func (a address) of(k *kubeProxy) string {
	set, ok := k.flag(a.flag)
	if k != nil && !ok {
		if data, err := k.config(); err == nil && data != nil {
			var fields map[string]any
			if bounds.CheckYAML("", data) == nil && yaml.Unmarshal(data, &fields) == nil {
				set, _ = fields[a.field].(string)
			}
		}
	}
	_, standardPort, _ := net.SplitHostPort(a.standard)
	host, port, err := net.SplitHostPort(set)
	if err != nil {
		host, port = set, standardPort
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case set == "" || err != nil:
		return a.standard
	case ip.IsUnspecified() && ip.Is6():
		return net.JoinHostPort("::1", port)
	case ip.IsUnspecified():
		return net.JoinHostPort("127.0.0.1", port)
	}
	return net.JoinHostPort(host, port)
}

// The limits of a request to kube-proxy.
const (
	askTime    = 3 * time.Second
	askAnswer  = bounds.SmallFile
	statusText = 200
)

// endpoint reads kube-proxy's answer to a request. The connection is closed by a reset, so that connection tracking
// removes its entry after ten seconds instead of two minutes (nf_conntrack_tcp_timeout_close and _time_wait).
func endpoint(at address, path string) func(context.Context, *reader) ([]byte, error) {
	return func(ctx context.Context, r *reader) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		to := at.of(r.proxy)
		client := http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, Proxy: nil,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				var d net.Dialer
				c, err := d.DialContext(ctx, network, to)
				if tcp, ok := c.(*net.TCPConn); ok {
					err = errors.Join(err, tcp.SetLinger(0))
				}
				return c, err
			},
		}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+to+path, http.NoBody)
		if err != nil {
			return nil, err
		}
		answer, err := client.Do(req)
		if err != nil {
			return nil, r.silent(to, err)
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(io.LimitReader(answer.Body, askAnswer+1))
		switch {
		case err != nil:
			return nil, r.silent(to, err)
		case len(data) > askAnswer:
			return nil, fmt.Errorf("kube-proxy's %s is larger than %d bytes", path, askAnswer)
		case answer.StatusCode == http.StatusServiceUnavailable && at == healthAddress:
			return data, nil // unhealthy, and says why
		case answer.StatusCode != http.StatusOK:
			return nil, fmt.Errorf("kube-proxy answers %s with %s: %s", path, answer.Status,
				bytes.TrimSpace(data[:min(len(data), statusText)]))
		}
		return data, nil
	}
}

// silent returns why kube-proxy does not answer.
func (r *reader) silent(to string, err error) error {
	if r.proxy == nil {
		return fmt.Errorf("nothing answers at %s, and no kube-proxy process runs on the node: %w", to, err)
	}
	return fmt.Errorf("kube-proxy (process %s) does not answer at %s: %w", r.proxy.pid, to, err)
}

// configFiles are where installers put kube-proxy's configuration on a node: kubeadm's name of it, and that of
// installers that run kube-proxy as a service of the node. They are read where no kube-proxy runs, which could name it.
var configFiles = []string{
	"var/lib/kube-proxy/config.conf", "var/lib/kube-proxy/kube-proxy-config.yaml", "var/lib/kube-proxy/config.yaml",
	"etc/kubernetes/kube-proxy-config.yaml",
}

// configSize bounds such a file.
const configSize = 1 << 20

// installedConfig reads the first of configFiles that is there and is a configuration of kube-proxy; nil: there is
// none.
func installedConfig(root string) []byte {
	if root == "" {
		return nil
	}
	for _, name := range configFiles {
		f, err := os.OpenInRoot(root, name)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(f, configSize+1))
		f.Close()
		var head struct {
			Kind string `json:"kind"`
		}
		if err == nil && len(data) <= configSize && yaml.Unmarshal(data, &head) == nil &&
			head.Kind == "KubeProxyConfiguration" {
			return data
		}
	}
	return nil
}

// ended returns a text with the end of its last line: without one it would count as cut off.
func ended(data []byte) []byte {
	if len(data) == 0 || data[len(data)-1] == '\n' {
		return data
	}
	return append(data, '\n')
}

// readProxyConfig reads the file of --config; what kube-proxy is told without one is in snapshot.FlagsFile. Where
// kube-proxy does not run, it reads the file that an installer has put on the node.
func readProxyConfig(_ context.Context, r *reader) ([]byte, error) {
	if r.proxy == nil {
		if data := installedConfig(r.Root); data != nil {
			return ended(data), nil
		}
		return nil, errors.New("no kube-proxy process runs on the node")
	}
	data, err := r.proxy.config()
	if err == nil && data == nil {
		return nil, errAbsent
	}
	return ended(data), err
}
