// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/process"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/program"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// reader reads one node.
type reader struct {
	Options

	kernel *kernel
	// proxy is kube-proxy's process, or that of the program that contains it; nil where neither is among processes, which
	// are those that may serve Services here. named are those that merely have such a name, and unidentified says why it
	// is not known which processes there are.
	proxy        *process.Process
	processes    []*process.Process
	named        []process.Named
	unidentified error
	// roots are the file systems that programs are run from: this process's own first, then the node's.
	roots []string
	// journal is that of before the rules were read; nil: it is not wanted.
	journal    *snapshot.Journal
	journalErr error
	listeners  listeners
}

// source is where files come from: each is read by one function.
type source struct {
	file string
	read func(context.Context, *reader) ([]byte, error)
}

// What is read of every network namespace, the node's and those of pods.
var (
	saves = []source{
		{snapshot.IPTablesNFTFile, save("iptables", "nft")},
		{snapshot.IP6TablesNFTFile, save("ip6tables", "nft")},
		{snapshot.IPTablesLegacyFile, save("iptables", "legacy")},
		{snapshot.IP6TablesLegacyFile, save("ip6tables", "legacy")},
	}
	routing = []source{
		{snapshot.AddrFile, readAddresses},
		{snapshot.LinkFile, command("ip", "-j", "-d", "link")},
		{snapshot.RouteFile, readRoutes("-4")},
		{snapshot.Route6File, readRoutes("-6")},
		{snapshot.RuleFile, readPolicies(unix.AF_INET, "rule")},
		{snapshot.Rule6File, readPolicies(unix.AF_INET6, "-6", "rule")},
		{snapshot.NeighbourFile, readNeighbours},
	}
	onPath = []source{
		{snapshot.SysctlFile, readSysctl},
		{snapshot.ProgramsFile, readPrograms},
		{snapshot.NFTHooksFile, module("nfnetlink_hook", command("nft", "list", "hooks"))},
		{snapshot.XfrmFile, module("xfrm_user", readIPsec)},
	}
)

// rules are read together: they may change while they are read.
var rules = slices.Concat(saves, []source{
	{snapshot.NFTFile, readNft},
	{snapshot.IPSetFile, module("ip_set", command("ipset", "save"))},
	{snapshot.IPVSFile, module("ip_vs", readIPVS)},
	{snapshot.TimeFile, readTime},
})

var others = slices.Concat([]source{
	{snapshot.ConntrackFile, module("nf_conntrack_netlink", readConntrack)},
}, routing, []source{
	{snapshot.BridgeFDBFile, command("bridge", "-j", "fdb", "show")},
	{snapshot.WireGuardFile, module("wireguard", readWireGuard)},
}, onPath, []source{
	{snapshot.EbtablesFile, readEbtables},
	{snapshot.ListenFile, readListeners},
	{snapshot.StoppedFile, readStopped},
	{snapshot.ProcessesFile, readProcesses},
	{snapshot.JournalFile, readJournal},
	{snapshot.ConfigzFile, endpoint(metricsAddress, "/configz")},
	{snapshot.MetricsFile, endpoint(metricsAddress, "/metrics")},
	{snapshot.ProxyModeFile, endpoint(metricsAddress, "/proxyMode")},
	{snapshot.HealthzFile, endpoint(healthAddress, "/healthz")},
	{snapshot.LivezFile, endpoint(healthAddress, "/livez")},
	{snapshot.ProxyConfigFile, readProxyConfig},
	{snapshot.FlagsFile, readFlags},
	{snapshot.VersionsFile, readVersions},
})

func collect(ctx context.Context, o Options, emit func(File) error) error {
	r := &reader{Options: o, kernel: newKernel(o.Root)}
	r.identify()
	defer func() {
		for _, p := range r.processes {
			p.Close()
		}
	}()
	r.roots = programRoots(r.Root)
	if r.wants(snapshot.JournalFile) && r.Root != "" {
		r.journal, r.journalErr = program.Listing(r.Root)
	}

	files, err := r.settled(ctx)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := emit(f); err != nil {
			return err
		}
	}
	return r.read(ctx, others, emit)
}

// readRules reads the rules once.
func (r *reader) readRules(ctx context.Context) (files []File, err error) {
	total := 0
	return files, r.read(ctx, rules, func(f File) error {
		if total += len(f.Data); total > bounds.Node {
			total -= len(f.Data)
			f = File{Name: f.Name, Unread: "with the other rules it is larger than " + bounds.Bytes(bounds.Node)}
		}
		files = append(files, f)
		return nil
	})
}

// read reads sources concurrently, and emits their files one after the other.
func (r *reader) read(ctx context.Context, sources []source, emit func(File) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan File)
	var wg sync.WaitGroup
	free := make(chan struct{}, max(2, runtime.NumCPU()))
	for _, s := range sources {
		if !r.wants(s.file) {
			continue
		}
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			if f, there := r.fileOf(ctx, s); there {
				select {
				case results <- f:
				case <-ctx.Done():
				}
			}
		})
	}
	go func() {
		wg.Wait()
		close(results)
	}()
	var failed error
	for f := range results {
		if failed == nil {
			if failed = emit(f); failed != nil {
				cancel()
			}
		}
	}
	if failed == nil {
		failed = context.Cause(ctx)
	}
	return failed
}

func (r *reader) fileOf(ctx context.Context, s source) (f File, there bool) {
	data, err := s.read(ctx, r)
	switch {
	case errors.Is(err, errAbsent), ctx.Err() != nil:
		return File{}, false
	case err != nil:
		return File{Name: s.file, Unread: sentence(err)}, true
	}
	// The plugin would refuse the whole answer: one file that is too large costs only what depends on it.
	if err := snapshot.Check(s.file, data); err != nil {
		return File{Name: s.file, Unread: sentence(err)}, true
	}
	return File{Name: s.file, Data: data}, true
}

// sentence makes one line of an error.
func sentence(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// module reads only if a module of the kernel is available: a request would load it.
func module(
	name string, read func(context.Context, *reader) ([]byte, error),
) func(context.Context, *reader) ([]byte, error) {
	return func(ctx context.Context, r *reader) ([]byte, error) {
		there, err := r.kernel.has(name)
		if err != nil {
			return nil, err
		}
		if !there {
			return nil, errAbsent
		}
		return read(ctx, r)
	}
}

// programRoots lists where programs may be run from: nothing is run that a container has brought.
func programRoots(root string) []string {
	if root == "" || root == "/" {
		return []string{"/"}
	}
	return []string{"/", root}
}
