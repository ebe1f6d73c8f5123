// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// helperOptions say how the nodes of a cluster are inspected: by a helper pod on each, or by this process on the node itself.
type helperOptions struct {
	none     bool // the command looks at no node
	local    bool
	parallel int
	dryRun   string

	image, pullPolicy, pullSecret, namespace, profile string
	timeout                                           time.Duration
	keep, ownPod                                      bool

	dryRuns []string      // the values of --dry-run; nil: none and client
	hold    time.Duration // how long a helper stays that programs
}

// helperFlags are the flags that mean nothing where no helper pod is made.
var helperFlags = []string{
	"image", "image-pull-policy", "image-pull-secret", "helper-namespace", "security-profile", "keep", "own-pod", "dry-run", "parallel",
}

func (o *helperOptions) addFlags(cmd *cobra.Command, s *shared) {
	f := cmd.Flags()
	f.BoolVar(&o.local, "local", false, "Look at this machine, which is a node, without a helper pod; needs root")
	o.addPodFlags(f)
	_ = cmd.RegisterFlagCompletionFunc("helper-namespace", s.completeNamespaces)
	f.IntVar(&o.parallel, "parallel", 8, "How many nodes to look at side by side")
	f.StringVar(&o.dryRun, "dry-run", "none", "client prints the helper pods, and makes none")
	f.BoolVar(&o.keep, "keep", false, "Leave the helper pods when done, to look into them")
	f.BoolVar(&o.ownPod, "own-pod", false, "Make a helper pod also on a node where the DaemonSet's is ready")
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"client", "none"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("image-pull-policy", cobra.FixedCompletions([]string{"Always", "IfNotPresent", "Never"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("security-profile", cobra.FixedCompletions(launch.Profiles(), cobra.ShellCompDirectiveNoFileComp))
}

func (o *helperOptions) addPodFlags(f *pflag.FlagSet) {
	f.StringVar(&o.image, "image", "", "Image of the helper (default "+launch.DefaultImage(readBuildInfo().Version)+")")
	f.StringVar(&o.pullPolicy, "image-pull-policy", string(corev1.PullIfNotPresent), "When to pull the helper's image: Always, IfNotPresent or Never")
	f.StringVar(&o.pullSecret, "image-pull-secret", "", "Secret in the helper's namespace to pull its image with")
	f.StringVar(&o.profile, "security-profile", string(launch.ProfilePrivileged), "Rights of the helper: "+strings.Join(launch.Profiles(), " or ")+". With the latter, what SELinux or AppArmor withholds stays unread")
	o.addNamespaceFlag(f)
}

func (o *helperOptions) addNamespaceFlag(f *pflag.FlagSet) {
	f.StringVar(&o.namespace, "helper-namespace", metav1.NamespaceSystem, "Namespace of the helper pods; it has to accept privileged ones")
	f.DurationVar(&o.timeout, "timeout", launch.DefaultTimeout, "How long to wait for the API server, for a helper pod to run, and for its answers")
}

// validate checks what the flags say together. offline: a snapshot is read.
func (o *helperOptions) validate(offline bool, flags *pflag.FlagSet) error {
	if offline && o.local {
		return usagef("--snapshot and --local exclude one another: give one of them")
	}
	if offline || o.local {
		with := "--snapshot"
		if o.local {
			with = "--local"
		}
		for _, name := range helperFlags {
			if flags.Changed(name) {
				return usagef("--%s is about helper pods, and with %s there is none", name, with)
			}
		}
	}
	values := o.dryRuns
	if values == nil {
		values = []string{"none", "client"}
	}
	if o.dryRun != "" && !slices.Contains(values, o.dryRun) {
		return usagef("--dry-run %q: it may be %s", o.dryRun, strings.Join(values, ", "))
	}
	if o.parallel < 1 && flags.Lookup("parallel") != nil {
		return usagef("--parallel %d: at least one node has to be looked at", o.parallel)
	}
	if o.timeout < time.Second && flags.Lookup("timeout") != nil {
		return usagef("--timeout %v is too short: give at least 1s", o.timeout)
	}
	return nil
}

// open returns the scene of a cluster. fallback is the namespace to make do with where not all may be read; "" for none.
func (o *helperOptions) open(s *shared, p *progress, fallback string) (*scene, error) {
	client, config, err := s.client()
	if err != nil {
		return nil, err
	}
	sc := &scene{
		source: cluster.FromAPI(client, fallback), progress: p,
		live: true, parallel: o.parallel, timeout: o.timeout, files: snapshot.NodeFiles,
	}
	if o.none {
		sc.nodes = noInspector{}
		return sc, nil
	}
	lo := launch.Options{
		Config: config, Client: client, Run: launch.NewRun(), Namespace: o.namespace, Build: readBuildInfo().Version,
		Image: o.image, PullPolicy: corev1.PullPolicy(o.pullPolicy), PullSecret: o.pullSecret, Profile: launch.Profile(o.profile),
		Timeout: o.timeout, Hold: o.hold, Keep: o.keep, OwnPod: o.ownPod, Watchdog: s.watchdog(),
		Say:  p.node,
		Note: func(node, what string) { p.note("%s: %s", node, what) },
	}
	sc.run = lo.Run
	if o.local {
		sc.nodes = &localInspector{scene: sc, options: lo, serve: s.system.Serve}
		return sc, nil
	}
	l, err := launch.New(lo)
	if err != nil {
		return nil, usagef("%w", err)
	}
	sc.nodes = &podInspector{scene: sc, launcher: l}
	sc.pod = func(node string) *corev1.Pod { return launch.Pod(lo, node) }
	return sc, nil
}

// dry prints the pods in place of making them, if that is asked for.
func (o *helperOptions) dry(s *shared, sc *scene, nodes []string) (bool, error) {
	if o.dryRun != "client" {
		return false, nil
	}
	sc.progress.done()
	for i, n := range nodes {
		data, err := yaml.Marshal(sc.pod(n))
		if err != nil {
			return true, err
		}
		if i > 0 {
			fmt.Fprintln(s.Out, "---")
		}
		if _, err := s.Out.Write(data); err != nil {
			return true, err
		}
	}
	return true, nil
}
