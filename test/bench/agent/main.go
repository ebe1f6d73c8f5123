// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command agent measures the agent of a node (svcproxy-nodehelper watch) on a node of 5,000 Services with 4 endpoints
// each, while one endpoint changes every second: how much memory it has, and how much of a processor it takes, in each
// mode of kube-proxy.
//
// The agent and kube-proxy are the real programs. They run in namespaces of their own, with an API server of this
// program's that serves both the same objects: so the rules follow the objects as they do on a node, and a path that is
// not a match is a defect. The namespaces go with the process.
//
// It prints figures, and fails where it could not measure, or where a finding has counted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	helper, proxy       string
	mode                string
	modes               string
	services, endpoints int
	settle, measure     time.Duration
	every               time.Duration
	inside              bool
	keep                string
}

func main() {
	var o options
	flag.StringVar(&o.helper, "helper", "bin/svcproxy-nodehelper", "the node helper")
	flag.StringVar(&o.proxy, "kube-proxy", "kube-proxy", "kube-proxy")
	flag.StringVar(&o.modes, "modes", "nftables,iptables,iptables-legacy", "kube-proxy's modes")
	flag.IntVar(&o.services, "services", 5000, "how many Services there are")
	flag.IntVar(&o.endpoints, "endpoints", 4, "how many endpoints each has")
	flag.DurationVar(&o.settle, "settle", 70*time.Second, "time after the first pass before anything is measured")
	flag.DurationVar(&o.measure, "for", 3*time.Minute, "how long the agent is measured")
	flag.DurationVar(&o.every, "every", time.Second, "the time between two changes")
	flag.StringVar(&o.keep, "log", "", "a directory for what the programs print")
	flag.BoolVar(&o.inside, "inside", false, "measure one mode in this process's namespaces: how it calls itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench/agent:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing to undo
	}
}

func run(ctx context.Context, o options) error {
	if o.inside {
		o.mode = o.modes
		return measure(ctx, o, os.Stdout)
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if o.keep != "" {
		if err := os.MkdirAll(o.keep, 0o750); err != nil {
			return err
		}
	}
	for mode := range strings.SplitSeq(o.modes, ",") {
		args := []string{
			"-inside", "-modes=" + mode, "-helper=" + o.helper, "-kube-proxy=" + o.proxy, "-log=" + o.keep,
			fmt.Sprintf("-services=%d", o.services), fmt.Sprintf("-endpoints=%d", o.endpoints),
			fmt.Sprintf("-settle=%v", o.settle), fmt.Sprintf("-for=%v", o.measure), fmt.Sprintf("-every=%v", o.every),
		}
		c := exec.CommandContext(ctx, self, args...) //nolint:gosec // this program
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		// The first process of a PID namespace takes the others along when it ends.
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
		}
		if err := c.Run(); err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
	}
	return nil
}

// machine makes a node of this process's namespaces: an own /proc, an own lock of iptables, addresses and routes.
func machine(ctx context.Context) error {
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
	}{
		{"", "/", "", syscall.MS_PRIVATE | syscall.MS_REC},
		{"proc", "/proc", "proc", 0},
		{"tmpfs", "/run", "tmpfs", 0},
	} {
		if err := syscall.Mount(m.from, m.to, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("cannot mount %s: %w", m.to, err)
		}
	}
	var b strings.Builder
	b.WriteString("link set lo up\nlink add eth0 type veth peer name wire\nlink set eth0 up\nlink set wire up\n" +
		"link add cni0 type bridge\nlink set cni0 up\nlink add veth0 type veth peer name pod0\nlink set veth0 up\n" +
		"link set pod0 up\nlink set veth0 master cni0\nlink set veth0 type bridge_slave hairpin on\n")
	fmt.Fprintf(&b, "addr add %s/24 dev eth0\naddr add %s dev cni0\n", nodeAddress(0),
		strings.Replace(podCIDR(0), ".0/", ".1/", 1))
	for i := 1; i < nodes; i++ {
		fmt.Fprintf(&b, "neigh replace %s lladdr 02:00:00:00:00:%02x dev eth0 nud stale\n", nodeAddress(i), i)
		fmt.Fprintf(&b, "route add %s via %s\n", podCIDR(i), nodeAddress(i))
	}
	fmt.Fprintf(&b, "route add default via %s\n", nodeAddress(1))
	c := exec.CommandContext(ctx, "ip", "-batch", "-")
	c.Stdin = strings.NewReader(b.String())
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// program is one that runs.
type program struct {
	*exec.Cmd

	ended chan error
}

// start starts a program. What it prints goes to a file.
func start(ctx context.Context, o *options, dir, name string, env []string, argv ...string) (*program, error) {
	if o.keep != "" {
		dir = o.keep
	}
	log, err := os.Create(filepath.Join(dir, name+"-"+o.mode+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // named by the command line
	c.Stdout, c.Stderr, c.Env = log, log, append(os.Environ(), env...)
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &program{c, make(chan error, 1)}
	go func() { p.ended <- fmt.Errorf("%s has ended: %w (see %s)", name, c.Wait(), log.Name()) }()
	return p, nil
}

// kubeconfig and the configuration of kube-proxy.
const (
	kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://%s"}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
users: [{name: a, user: {}}]
`
	proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clusterCIDR: %s
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, min: 0}
`
)

// startKubeProxy starts it in a mode.
func startKubeProxy(ctx context.Context, o *options, dir, config string) (*program, error) {
	mode, legacy := strings.CutSuffix(o.mode, "-legacy")
	file := filepath.Join(dir, "kube-proxy.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, proxyConfig, mode, podNetwork, config), 0o600); err != nil {
		return nil, err
	}
	backend := map[bool]string{true: "legacy", false: "nft"}[legacy]
	tools := filepath.Join(dir, "tools")
	if err := os.MkdirAll(tools, 0o700); err != nil {
		return nil, err
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, what := range []string{"", "-save", "-restore"} {
			of, err := exec.LookPath(family + "-" + backend + what)
			if err != nil {
				return nil, err
			}
			if err := os.Symlink(of, filepath.Join(tools, family+what)); err != nil {
				return nil, err
			}
		}
	}
	return start(ctx, o, dir, "kube-proxy", []string{"PATH=" + tools + ":" + os.Getenv("PATH")},
		o.proxy, "--config="+file, "--hostname-override="+node, "-v=2")
}

const (
	proxyMetrics = "http://127.0.0.1:10249/metrics"
	agentAddress = "127.0.0.1:9469"
	agentMetrics = "http://" + agentAddress + "/metrics"
)

func measure(ctx context.Context, o options, out io.Writer) error {
	if err := machine(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/run", "bench-")
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", nodeAddress(0)+":0")
	if err != nil {
		return err
	}
	address, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return err
	}
	served := newAPI()
	//nolint:gosec // the benchmark's own
	c := &cluster{services: o.services, endpoints: o.endpoints, random: rand.New(rand.NewPCG(1, 1))}
	c.fill(served, address)
	go func() { _ = http.Serve(l, served) }() //nolint:gosec // it ends with the process
	config := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeconfig, address), 0o600); err != nil {
		return err
	}
	proxy, err := startKubeProxy(ctx, &o, dir, config)
	if err != nil {
		return err
	}
	begin := time.Now()
	if _, err := until(ctx, proxyMetrics, 5*time.Minute, func(m metrics) bool {
		return m["kubeproxy_sync_proxy_rules_last_timestamp_seconds"] > 0 || m.sum(
			"kubeproxy_sync_proxy_rules_last_timestamp_seconds") > 0
	}, proxy); err != nil {
		return err
	}
	fmt.Fprintf(out,
		"%s, %d Services of %d endpoints, one endpoint changes every %v (kube-proxy had its rules after %.0fs)\n", o.mode,
		o.services, o.endpoints, o.every, time.Since(begin).Seconds())
	agent, err := start(ctx, &o, dir, "agent", nil, o.helper, "watch", "--node="+node, "--kubeconfig="+config,
		"--listen="+agentAddress, "--root=/proc/1/root")
	if err != nil {
		return err
	}
	r := &record{o: &o, agent: agent, proxy: proxy, api: served, cluster: c}
	return r.run(ctx, out)
}
