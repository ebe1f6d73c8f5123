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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/ownaddr"
	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/process"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/sockets"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// programs are those that may serve Services on a node, whose processes are in snapshot.ProcessesFile: kube-proxy,
// programs that contain it, and programs that replace it. That of k3s is also containerd, kubectl and others.
var programs = append(slices.Clone(proxies),
	process.Programs("cilium-agent", "kube-router", "antrea-agent", "ovnkube", "calico-node")...)

// proxies are kube-proxy and the programs that contain it.
var proxies = append(process.Programs(kubeproxy.Process, "kubelite"),
	process.Program{File: "k3s", Names: []string{"k3s-server", "k3s-agent"}})

// proxyOf returns kube-proxy's process, else the one that contains it; nil where neither is found.
func proxyOf(found []*process.Process) *process.Process {
	var embedding *process.Process
	for _, p := range found {
		switch {
		case p.Program == kubeproxy.Process:
			return p
		case embedding == nil && slices.ContainsFunc(proxies, func(x process.Program) bool { return x.File == p.Program }):
			embedding = p
		}
	}
	return embedding
}

// ProxyLooker returns what finds kube-proxy, or the program that contains it: its PID, "" where there is none. As long
// as that process runs no other is searched for. It is for one goroutine.
func ProxyLooker() func() string {
	var last *process.Process
	return func() string {
		if last != nil && last.Still() {
			return fmt.Sprint(last.PID)
		}
		if last != nil {
			last.Close()
		}
		found, _, err := process.Find(proxies)
		if last = proxyOf(found); err != nil || last == nil {
			return ""
		}
		for _, p := range found {
			if p != last {
				p.Close()
			}
		}
		return fmt.Sprint(last.PID)
	}
}

// identify finds the processes that may serve Services here.
func (r *reader) identify() {
	if os.Getpid() == 1 {
		r.unidentified = errors.New(
			"the helper sees only its own processes: its pod does not use the node's PID namespace " +
				"(hostPID)",
		)
		return
	}
	r.processes, r.named, r.unidentified = process.Find(programs)
	r.proxy = proxyOf(r.processes)
}

// nameless says why kube-proxy is not known.
func (r *reader) nameless() error {
	if r.unidentified != nil {
		return fmt.Errorf("which process is kube-proxy's is not known: %w", r.unidentified)
	}
	for _, n := range r.named {
		if n.Name == kubeproxy.Process {
			return fmt.Errorf(
				"no kube-proxy process runs on the node that may be believed: process %d is not taken for it, %s",
				n.PID,
				n.Why,
			)
		}
	}
	return errors.New("no kube-proxy process runs on the node")
}

// configOf reads the file that --config of a process names; nil where it has no such flag. It is reduced to the fields
// of a configuration that decide something here.
func configOf(p *process.Process) ([]byte, error) {
	name, ok := flagOf(p.Args, "config")
	if !ok {
		return nil, nil
	}
	data, err := p.File(name, bounds.Config)
	if err != nil {
		return nil, err
	}
	if !p.Still() {
		return nil, errReplaced
	}
	return kubeproxy.ReduceConfig(data)
}

// errReplaced says that a process has ended, or executed another program, while something was asked of it.
var errReplaced = errors.New("kube-proxy has ended meanwhile")

// flagOf returns the value of a flag of a command line; ok is false where it is not given.
func flagOf(args []string, name string) (value string, ok bool) {
	for i, a := range args {
		a = strings.TrimLeft(a, "-")
		if a == name && i+1 < len(args) {
			value, ok = args[i+1], true
		} else if v, found := strings.CutPrefix(a, name+"="); found {
			value, ok = v, true
		}
	}
	return value, ok
}

// Where kube-proxy answers, unless it is configured otherwise (pkg/proxy/apis/config/v1alpha1/defaults.go).
type address struct {
	flag     string
	of       func(kubeproxy.Addresses) string
	standard netip.AddrPort
}

var (
	metricsAddress = address{
		"metrics-bind-address", func(a kubeproxy.Addresses) string { return a.Metrics },
		netip.MustParseAddrPort("127.0.0.1:10249"),
	}
	healthAddress = address{
		"healthz-bind-address", func(a kubeproxy.Addresses) string { return a.Healthz },
		netip.MustParseAddrPort("127.0.0.1:10256"),
	}
)

// port returns the port at which a process answers, and its address, unless that is any.
func (a *address) port(p *process.Process) (at netip.Addr, port uint16) {
	set, ok := flagOf(p.Args, a.flag)
	if config, err := configOf(p); !ok && err == nil && config != nil {
		set = a.of(kubeproxy.AddressesOf(config))
	}
	host, number, err := net.SplitHostPort(set)
	if err != nil {
		host = set
	}
	at, err = netip.ParseAddr(host)
	n, portErr := strconv.ParseUint(number, 10, 16)
	switch {
	case set == "", err != nil:
		return a.standard.Addr(), a.standard.Port()
	case portErr != nil || n == 0:
		n = uint64(a.standard.Port())
	}
	if at.IsUnspecified() {
		at = netip.Addr{}
	}
	return at, uint16(n)
}

// socket returns where to ask a process: at a socket that it has open itself, at loopback or an address of the node.
// Whatever its configuration names besides is somebody else's.
func (a *address) socket(p *process.Process) (netip.AddrPort, error) {
	at, port := a.port(p)
	own, err := p.Sockets()
	if err != nil {
		return netip.AddrPort{}, err
	}
	list, err := sockets.Listening()
	if err != nil {
		return netip.AddrPort{}, err
	}
	addresses, err := ownaddr.List()
	if err != nil {
		return netip.AddrPort{}, err
	}
	for i := range list {
		s := &list[i]
		if local := s.Local.Addr().Unmap(); s.Protocol != "TCP" || s.Local.Port() != port || !own[s.Inode] ||
			at.IsValid() && !local.IsUnspecified() && local != at.Unmap() {
			continue
		}
		to := s.Local.Addr().Unmap()
		if to.IsUnspecified() {
			to = at.Unmap()
		}
		switch {
		case !to.IsValid() && (s.Local.Addr().Is4() || slices.Contains(addresses, netip.AddrFrom4([4]byte{127, 0, 0, 1}))):
			to = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		case !to.IsValid():
			to = netip.IPv6Loopback()
		}
		if to.IsLoopback() || slices.Contains(addresses, to) {
			return netip.AddrPortFrom(to, port), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf(
		"kube-proxy (process %d) has no socket of its own at TCP port %d of this node",
		p.PID,
		port,
	)
}

// The limits of a request to kube-proxy.
const (
	askTime   = 3 * time.Second
	askAnswer = bounds.SmallFile
)

// endpoint reads kube-proxy's answer to a request. Of an answer that is an error nothing is repeated: it may be
// anything. The connection is closed by a reset, so that connection tracking removes its entry after ten seconds
// instead of two minutes (nf_conntrack_tcp_timeout_close and _time_wait).
func endpoint(at address, path string) func(context.Context, *reader) ([]byte, error) {
	return func(ctx context.Context, r *reader) ([]byte, error) {
		if r.proxy == nil {
			return nil, r.nameless()
		}
		to, err := at.socket(r.proxy)
		if err != nil {
			return nil, err
		}
		status, data, err := ask(ctx, to, path)
		switch {
		case err != nil:
			return nil, fmt.Errorf("kube-proxy (process %d) does not answer at %s: %w", r.proxy.PID, to, err)
		case status != http.StatusOK && (status != http.StatusServiceUnavailable || at.flag != healthAddress.flag):
			return nil, fmt.Errorf("kube-proxy answers %s with status %d", path, status)
		}
		// Another one may have taken the address meanwhile.
		if again, err := at.socket(r.proxy); err != nil || again != to || !r.proxy.Still() {
			return nil, errReplaced
		}
		if path == configz {
			return kubeproxy.ReduceConfigz(data)
		}
		return data, nil
	}
}

// configz is the path of kube-proxy's configuration.
const configz = "/configz"

// Errors of a request. What was received is not a part of them.
var (
	errNoAnswer = errors.New("no answer came in time")
	errNoHTTP   = errors.New("what answers does not speak HTTP as kube-proxy does")
)

// ask makes a request to an address of the node, and follows no redirection.
func ask(ctx context.Context, to netip.AddrPort, path string) (status int, data []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	client := http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true, Proxy: nil, MaxResponseHeaderBytes: maxHeader,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				var d net.Dialer
				c, err := d.DialContext(ctx, network, to.String())
				if tcp, ok := c.(*net.TCPConn); ok {
					err = errors.Join(err, tcp.SetLinger(0))
				}
				return c, err
			},
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+to.String()+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	answer, err := client.Do(req)
	if err != nil {
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return 0, nil, dial
		}
		return 0, nil, reasonOf(ctx)
	}
	defer answer.Body.Close()
	data, err = io.ReadAll(io.LimitReader(answer.Body, askAnswer+1))
	switch {
	case err != nil:
		return 0, nil, reasonOf(ctx)
	case len(data) > askAnswer:
		return 0, nil, fmt.Errorf("its answer to %s is larger than %d bytes", path, askAnswer)
	}
	return answer.StatusCode, data, nil
}

// maxHeader bounds the head of an answer, in bytes.
const maxHeader = 64 << 10

// reasonOf says why a request has failed.
func reasonOf(ctx context.Context) error {
	if ctx.Err() != nil {
		return errNoAnswer
	}
	return errNoHTTP
}

// configFiles are where installers put kube-proxy's configuration on a node: kubeadm's name of it, and that of
// installers that run kube-proxy as a service of the node. They are read where no kube-proxy runs, which could name it.
var configFiles = []string{
	"var/lib/kube-proxy/config.conf", "var/lib/kube-proxy/kube-proxy-config.yaml", "var/lib/kube-proxy/config.yaml",
	"etc/kubernetes/kube-proxy-config.yaml",
}

// installedConfig reads the first of configFiles that is there and is a configuration of kube-proxy; nil: there is
// none.
func installedConfig(root string) []byte {
	if root == "" {
		return nil
	}
	dir, err := os.Open(root)
	if err != nil {
		return nil
	}
	defer dir.Close()
	for _, name := range configFiles {
		data, err := process.FileIn(dir, name, bounds.Config)
		if err != nil {
			continue
		}
		if data, err = kubeproxy.ReduceConfig(data); err == nil {
			return data
		}
	}
	return nil
}

// readProxyConfig reads the file of --config; what kube-proxy is told without one is in snapshot.FlagsFile. Where
// kube-proxy does not run, it reads the file that an installer has put on the node.
func readProxyConfig(_ context.Context, r *reader) ([]byte, error) {
	if r.proxy == nil {
		if data := installedConfig(r.Root); data != nil {
			return data, nil
		}
		return nil, r.nameless()
	}
	data, err := configOf(r.proxy)
	if err == nil && data == nil {
		return nil, errAbsent
	}
	return data, err
}

// readFlags reads from the command line of kube-proxy, or of the program that contains it, the flags that decide what
// is programmed, and no others: they may be secrets.
func readFlags(_ context.Context, r *reader) ([]byte, error) {
	if r.proxy == nil || len(r.proxy.Args) == 0 {
		return nil, errAbsent
	}
	program := r.proxy.Program
	var out bytes.Buffer
	out.WriteString(program + "\n")
	for _, f := range kubeproxy.PickFlags(program, r.proxy.Args[1:]) {
		if safetext.HasUnsafe(f) {
			return nil, errors.New("kube-proxy's command line has characters that no flag has")
		}
		out.WriteString(f + "\n")
	}
	if out.Len() > bounds.Config {
		return nil, bounds.TooLarge("kube-proxy's command line", bounds.Config)
	}
	return out.Bytes(), nil
}

// readProcesses lists the processes that may serve Services here, and those that merely have such a name.
func readProcesses(_ context.Context, r *reader) ([]byte, error) {
	if r.unidentified != nil {
		return nil, r.unidentified
	}
	var list []snapshot.Process
	for _, p := range r.processes {
		list = append(list, snapshot.Process{PID: p.PID, Name: p.Name, Cgroup: p.Cgroup})
	}
	for _, n := range r.named {
		list = append(list, snapshot.Process{PID: n.PID, Name: n.Name, Not: n.Why})
	}
	slices.SortFunc(list, func(a, b snapshot.Process) int { return a.PID - b.PID })
	return snapshot.EncodeProcesses(list), nil
}
