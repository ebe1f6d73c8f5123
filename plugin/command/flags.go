// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The flags that several commands have. Each group is plain data, which a command's options hold as one field.

// nodeFlags say where the data is from and which nodes are read.
type nodeFlags struct {
	snapshot string
	nodes    []string
	allNodes bool
	selector string
}

// add defines the flags.
func (n *nodeFlags) add(cmd *cobra.Command, env *environment) {
	n.addSnapshot(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&n.nodes, "node", nil, fmt.Sprintf("Read this node (repeatable). By default all nodes of "+
		"a snapshot, or up to %d nodes of a cluster, which the output names", run.FewNodes))
	f.BoolVar(&n.allNodes, "all-nodes", false, "Read all nodes")
	f.StringVarP(&n.selector, "selector", "l", "", "Read the nodes with these labels, as in kubectl get nodes -l")
	_ = cmd.RegisterFlagCompletionFunc("node", env.completeNodes)
}

// addSnapshot defines --snapshot alone.
func (n *nodeFlags) addSnapshot(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.snapshot, "snapshot", "",
		"Read this snapshot, a directory or .tar.gz; no cluster is contacted")
	_ = cmd.RegisterFlagCompletionFunc("snapshot", completeFiles)
}

// selection checks the flags, also with those of the helper, and says which nodes they select.
func (n *nodeFlags) selection(flags *pflag.FlagSet, h *helperFlags) (run.Selection, error) {
	out := run.Selection{Names: n.nodes, All: n.allNodes, Local: h.local}
	if n.allNodes && len(n.nodes) > 0 || n.allNodes && n.selector != "" || len(n.nodes) > 0 && n.selector != "" {
		return out, run.Usagef("--node, --selector and --all-nodes exclude one another: give one of them")
	}
	// --node "$NODE" with nothing in NODE must not mean all nodes, nor --snapshot "$DUMP" the cluster.
	if slices.Contains(n.nodes, "") || len(n.nodes) == 0 && flags.Changed("node") {
		return out, run.Usagef("--node is empty: give the name of a node")
	}
	if from := flags.Lookup("from"); from != nil && from.Changed && from.Value.String() == "" {
		return out, run.Usagef("--from is empty: give pod/NAME, node/NAME, external or an IP address")
	}
	if n.snapshot == "-" {
		return out, run.Usagef("--snapshot -: a snapshot is not read from standard input: give a directory or a .tar.gz")
	}
	if n.snapshot == "" && flags.Changed("snapshot") {
		return out, run.Usagef("--snapshot is empty: give a directory or a .tar.gz")
	}
	if n.selector != "" {
		selector, err := labels.Parse(n.selector)
		if err != nil {
			return out, run.Usagef("--selector %q: %w", n.selector, err)
		}
		out.Labels, out.LabelText = selector, n.selector
	}
	if h.local && (n.allNodes || n.selector != "" || len(n.nodes) > 1) {
		return out, run.Usagef("--local reads this machine, which is one node: give at most one --node with it")
	}
	return out, h.validate(n.snapshot != "", flags)
}

// everywhere is the flag that makes a command read all nodes. A snapshot's are read anyway.
func (n *nodeFlags) everywhere() []string {
	if n.snapshot != "" {
		return nil
	}
	return []string{"--all-nodes"}
}

// again is the part of a command line that names the same data.
func (n *nodeFlags) again(env *environment, h *helperFlags) []string {
	var words []string
	if n.snapshot != "" {
		words = append(words, "--snapshot", n.snapshot)
	} else {
		env.kubeFlags(func(name, value string) { words = append(words, "--"+name, value) })
	}
	if h.local {
		words = append(words, "--local")
	}
	return words
}

// next is a command of this program to go on with; words are its arguments, what describes it.
func next(what string, words ...string) report.Remedy {
	return report.Remedy{Text: what, Commands: []report.Command{{Line: name + " " + report.ShellLine(words...)}}}
}

// keepEvidence is the command that makes a snapshot of the nodes that are not right, as a remedy may remove what shows
// it; zero where there is none. again are the flags that name the same cluster.
func keepEvidence(r *report.Report, again []string) report.Remedy {
	words := []string{"dump"}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if !n.Verdict.NeedsAttention() || n.Error != "" {
			continue
		}
		if len(words) > 2*keptNodes {
			words = []string{"dump", "--all-nodes"}
			break
		}
		words = append(words, "--node", n.Node)
	}
	if len(words) == 1 {
		return report.Remedy{}
	}
	if slices.Contains(again, "--local") {
		words = []string{"dump"}
	}
	return next("", slices.Concat(words, again, []string{"-o", "evidence.tar.gz"})...)
}

// keptNodes is how many nodes are named in the command that keeps the evidence.
const keptNodes = 4

// nameArgument is the name of a Service as an argument, which must not be taken for a flag.
func nameArgument(name string) string {
	if strings.HasPrefix(name, "-") {
		return "service/" + name
	}
	return name
}

// helperFlags say how the nodes of a cluster are read: by a helper pod on each, or by this process on the node itself.
type helperFlags struct {
	local      bool
	parallel   int
	dryRun     string // none, client; server for program
	image      string
	pullPolicy string
	pullSecret string
	namespace  string
	profile    string
	timeout    time.Duration
	keep       bool
	ownPod     bool
}

// The variables of the environment that stand for flags of the helper.
const (
	envImage      = "SVCPROXY_IMAGE"
	envNamespace  = "SVCPROXY_NAMESPACE"
	envPullSecret = "SVCPROXY_PULL_SECRET" //nolint:gosec // the name of a variable, which has the name of a Secret
)

// podFlags are the flags that mean nothing where no helper pod is made.
var podFlags = []string{
	"image", "image-pull-policy", "image-pull-secret", "helper-namespace", "security-profile", "keep", "own-pod",
	"dry-run",
	"parallel",
}

// dryRuns are the values of --dry-run.
var dryRuns = []string{"none", "client"}

// add defines the flags.
func (h *helperFlags) add(cmd *cobra.Command, env *environment) {
	f := cmd.Flags()
	f.BoolVar(&h.local, "local", false, "Read this machine, which is a node, without a helper pod; needs root")
	f.StringVar(&h.image, "image", env.getenv(envImage), "Image of the helper; also set by the environment variable "+
		""+envImage+" "+
		"(default "+launch.DefaultImage(readBuildInfo().Version)+")")
	f.StringVar(&h.pullPolicy, "image-pull-policy", string(corev1.PullIfNotPresent),
		"When to pull the helper's image: Always, IfNotPresent or Never")
	f.StringVar(&h.pullSecret, "image-pull-secret", env.getenv(envPullSecret),
		"Secret in the helper's namespace for pulling its image; also set by the environment variable "+envPullSecret)
	f.StringVar(&h.profile, "security-profile", string(launch.ProfilePrivileged), "Privileges of the helper: "+
		strings.Join(launch.Profiles(), " or ")+". With the latter, files that SELinux or AppArmor protects are not read")
	f.StringVar(&h.namespace, "helper-namespace", cmp.Or(env.getenv(envNamespace), metav1.NamespaceSystem),
		"Namespace of the helper pods, which has to accept privileged pods; also set by the environment variable "+
			envNamespace)
	f.DurationVar(&h.timeout, "timeout", launch.DefaultTimeout,
		"How long to wait for the API server, for a helper pod to run, and for its answers")
	f.IntVar(&h.parallel, "parallel", 8, "How many nodes to read at the same time")
	f.StringVar(&h.dryRun, "dry-run", "none", "client prints the helper pods, and creates none")
	f.BoolVar(&h.keep, "keep", false, "Do not delete the helper pods at the end, so that you can inspect them")
	f.BoolVar(&h.ownPod, "own-pod", false, "Create a helper pod even on a node where the DaemonSet's pod is ready")
	_ = cmd.RegisterFlagCompletionFunc("helper-namespace", env.completeNamespaces)
	for flag, values := range map[string][]string{
		"dry-run":           {"client", "none"},
		"image-pull-policy": {"Always", "IfNotPresent", "Never"},
		"security-profile":  launch.Profiles(),
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, noFiles))
	}
}

// validate checks what the flags say together. offline: a snapshot is read.
func (h *helperFlags) validate(offline bool, flags *pflag.FlagSet) error {
	return h.validateDryRun(offline, flags, dryRuns)
}

// validateDryRun is validate for other values of --dry-run.
func (h *helperFlags) validateDryRun(offline bool, flags *pflag.FlagSet, dryRuns []string) error {
	if offline && h.local {
		return run.Usagef("--snapshot and --local exclude one another: give one of them")
	}
	if offline || h.local {
		with := "--snapshot"
		if h.local {
			with = "--local"
		}
		for _, name := range podFlags {
			// A dry run of program on the node itself prints no pod, but asks the node.
			if flags.Changed(name) && !(name == "dry-run" && slices.Contains(dryRuns, "server") && h.dryRun != "client") {
				return run.Usagef("--%s is about helper pods, and with %s there is none", name, with)
			}
		}
	}
	if h.dryRun != "" && !slices.Contains(dryRuns, h.dryRun) {
		return run.Usagef("--dry-run %q: it may be %s", h.dryRun, strings.Join(dryRuns, ", "))
	}
	if h.parallel < 1 && flags.Lookup("parallel") != nil {
		return run.Usagef("--parallel %d: give at least 1", h.parallel)
	}
	if h.timeout < time.Second && flags.Lookup("timeout") != nil {
		return run.Usagef("--timeout %v is too short: give at least 1s", h.timeout)
	}
	return nil
}

// podsOnly tells whether the helper pods are to be printed, and none to be made.
func (h *helperFlags) podsOnly() bool { return h.dryRun == "client" }

// session says what a run reads, and how. namespace is the one whose Services suffice where those of all may not be
// listed; "": none.
func (h *helperFlags) session(
	env *environment, n *nodeFlags, nodes run.Selection, namespace string,
) run.Config {
	return run.Config{
		Snapshot: n.snapshot, Connect: env.client, Namespace: namespace, Nodes: nodes,
		Serve: env.system.Serve, Parallel: h.parallel, Progress: run.NewProgress(env.errOut),
		Helper: launch.Options{
			Namespace: h.namespace, Build: readBuildInfo().Version, Image: h.image,
			PullPolicy: corev1.PullPolicy(h.pullPolicy), PullSecret: h.pullSecret, Profile: launch.Profile(h.profile),
			Timeout: h.timeout, Keep: h.keep, OwnPod: h.ownPod,
		},
	}
}

// printPods prints the pods that would be made on nodes.
func printPods(env *environment, s *run.Session, nodes []string) error {
	s.Progress.Done()
	for i, n := range nodes {
		data, err := json.Marshal(s.HelperPod(n))
		if err != nil {
			return err
		}
		if i > 0 {
			env.out.Line("---")
		}
		if err := env.out.YAML(data); err != nil {
			return err
		}
	}
	return nil
}

// outputFlags are the flags of the output.
type outputFlags struct {
	output      string
	template    string
	missingKeys bool
	color       string
	noHeaders   bool
	flags       *pflag.FlagSet // of the command
}

// add defines the flags. kind is the kind of the report, names what -o name prints.
func (o *outputFlags) add(cmd *cobra.Command, kind, names string) {
	f := cmd.Flags()
	o.flags = f
	formats := print.FormatsOf(kind)
	f.StringVarP(&o.output, "output", "o", "", "Output format: "+strings.Join(formats, ", ")+
		". wide shortens nothing; name prints "+names+drawn(formats))
	f.StringVar(&o.template, "template", "",
		"Template, or the path to one, for -o jsonpath, jsonpath-file, go-template or go-template-file")
	f.BoolVar(&o.missingKeys, "allow-missing-template-keys", true,
		"Ignore fields in a template that the report does not have")
	f.StringVar(&o.color, "color", print.Colors[0], "Colours of tables: auto (on a terminal, unless NO_COLOR is set), "+
		"always (in a pipe, too, and wrapped for a pager: | less -R) or never")
	if !slices.Contains(withoutTable, kind) {
		f.BoolVar(&o.noHeaders, "no-headers", false,
			"Print only the rows of tables, with the same columns at every width of the terminal")
	}
	_ = cmd.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(print.Colors, noFiles))
	_ = cmd.RegisterFlagCompletionFunc("template", completeFiles)
	values := make([]string, len(formats))
	for i, format := range formats {
		values[i] = strings.TrimSuffix(format, "…")
	}
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(values, noFiles|cobra.ShellCompDirectiveNoSpace))
}

// withoutTable are kinds of reports that have no table, of which --no-headers would print the rows.
var withoutTable = []string{report.KindDiff, report.KindStatus}

// drawn explains the formats that not every command has.
func drawn(formats []string) string {
	switch {
	case slices.Contains(formats, "mermaid"):
		return "; html is one page with pictures, which mermaid prints as text; markdown is for a ticket"
	case slices.Contains(formats, "html"):
		return "; html is one page; markdown is for a ticket"
	}
	return ""
}

// printer makes the printer that the flags ask for, for a kind of report.
func (o *outputFlags) printer(kind string) (*print.Printer, error) {
	if o.output == "" && o.flags.Changed("output") {
		return nil, run.Usagef("-o is empty: it may be %s", strings.Join(print.FormatsOf(kind), ", "))
	}
	p, err := print.NewPrinter(o.output, o.template, o.missingKeys)
	if err != nil {
		return nil, run.Usagef("%w", err)
	}
	if err := p.For(kind); err != nil {
		return nil, run.Usagef("%w", err)
	}
	if o.noHeaders && slices.Contains(withoutTable, kind) {
		return nil, run.Usagef("--no-headers prints the rows of a table, and this prints none: -o name prints names alone")
	}
	if !slices.Contains(print.Colors, o.color) {
		return nil, run.Usagef("--color %q: it may be %s%s", o.color, strings.Join(print.Colors, ", "),
			cluster.DidYouMean(o.color, print.Colors))
	}
	p.Color, p.NoHeaders = o.color, o.noHeaders
	return p, nil
}

// probeFlags ask for real connections.
type probeFlags struct {
	live    bool
	probes  int
	payload string
	size    int
}

// defaultProbes is how many connections --live makes of each frontend.
const defaultProbes = 20

// add defines the flags.
func (p *probeFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&p.live, "live", false, "Also make real connections from the node and its pods, without a payload, "+
		"and let the kernel trace some of them: show what happened to them, and with -o wide which rules they met")
	f.IntVar(&p.probes, "probes", defaultProbes, fmt.Sprintf(
		"With --live: how many connections to make to each frontend from each origin, 1 to %d", run.MaxProbes))
}

// addPayload defines the flags that have something sent.
func (p *probeFlags) addPayload(f *pflag.FlagSet) {
	f.StringVar(&p.payload, "payload", "", "With --live: send this text over each connection, and wait for an answer; "+
		"http "+
		"stands for an HTTP request for /; \\r, \\n, \\t and \\\\ are escapes as in C. By default nothing is sent")
	f.IntVar(&p.size, "size", 0, fmt.Sprintf("With --payload: how many bytes to send over each connection, at most %d: "+
		"the text is repeated, and an HTTP request has a header that long. Larger packets than an MTU on the path show "+
		"whether large packets arrive", maxSize))
}

// escapes are what a text to send may have in place of characters that are hard to write in a shell.
var escapes = strings.NewReplacer(`\\`, `\`, `\r`, "\r", `\n`, "\n", `\t`, "\t")

// maxPayload is how much may be sent over a connection, in bytes: what fits into one packet everywhere.
const maxPayload = 1000

// maxSize is the same with --size, whose purpose is larger packets: live.MaxPayload.
const maxSize = 16 << 10

// httpPayload is a request that every HTTP server answers, and that asks it to end the connection. httpPadding is the
// beginning of the header that makes it larger.
const (
	httpPayload = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kubectl-svcproxy\r\nConnection: close\r\n\r\n"
	httpPadding = "X-Padding: "
)

// bytes returns what to send over connections; empty for nothing.
func (p *probeFlags) bytes(f *pflag.FlagSet) (string, error) {
	switch {
	case f.Changed("size") && !f.Changed("payload"):
		return "", run.Usagef("--size says how large what --payload sends is: give --payload TEXT or --payload http, too")
	case !f.Changed("payload"):
		return "", nil
	case !p.live:
		return "", run.Usagef("--payload says what --live sends: give --live, too")
	}
	text := httpPayload
	if p.payload != "http" {
		text = escapes.Replace(p.payload)
	}
	switch {
	case text == "" || len(text) > maxPayload:
		return "", run.Usagef("--payload has %d bytes: it may have 1 to %d (--size repeats it)", len(text), maxPayload)
	case !f.Changed("size"):
		return text, nil
	}
	return sized(text, p.payload == "http", p.size)
}

// sized makes a payload so many bytes long.
func sized(text string, http bool, size int) (string, error) {
	least := len(text)
	if http {
		least += len(httpPadding) + len("\r\n")
	}
	switch {
	case size < least || size > maxSize:
		return "", run.Usagef("--size %d: it may be %d, as --payload has that many bytes, to %d", size, least, maxSize)
	case http:
		end := len(text) - len("\r\n") // of the headers
		return text[:end] + httpPadding + strings.Repeat("x", size-least) + "\r\n" + text[end:], nil
	}
	return strings.Repeat(text, size/len(text)+1)[:size], nil
}

// count checks the flags, and says how many connections they ask for; 0: none.
func (p *probeFlags) count(f *pflag.FlagSet, offline bool) (int, error) {
	switch {
	case !p.live && f.Changed("probes"):
		return 0, run.Usagef("--probes says how many connections --live makes: give --live, too")
	case p.live && offline:
		return 0, run.Usagef("--live connects to a cluster's Services, and --snapshot contacts none: give one of them")
	case p.probes < 1 || p.probes > run.MaxProbes:
		return 0, run.Usagef("--probes %d: it may be 1 to %d", p.probes, run.MaxProbes)
	case !p.live:
		return 0, nil
	}
	return p.probes, nil
}

// fromHelp explains --from.
const fromHelp = "Where the packet comes from: pod, pod/NAME, pod/NAMESPACE/NAME, node, node/NAME, external, or an " +
	"IP address. By default pod and node for cluster IPs, external and node for other frontends"

// addFrom defines --from.
func addFrom(cmd *cobra.Command, env *environment, from *string) {
	cmd.Flags().Var(&onceFlag{value: from}, "from", fromHelp)
	_ = cmd.RegisterFlagCompletionFunc("from", env.completeFrom)
}

// onceFlag is a string that is given once: of two, one would be left out, as if it had been looked at.
type onceFlag struct {
	value *string
	given bool
}

func (o *onceFlag) String() string {
	if o.value == nil {
		return ""
	}
	return *o.value
}

func (o *onceFlag) Type() string { return "string" }

// Set takes the value.
func (o *onceFlag) Set(value string) error {
	if o.given && value != *o.value {
		return fmt.Errorf("%q was given, too: run the command once for each", *o.value)
	}
	*o.value, o.given = value, true
	return nil
}
