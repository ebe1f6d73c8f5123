// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/svcproxy/kubectl-svcproxy/internal/apiraw"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// client returns a client of the cluster that the kubectl flags name. The error is about the kubeconfig: nothing is
// asked yet.
func (e *environment) client() (kubernetes.Interface, *rest.Config, error) {
	const orSnapshot = "to read a snapshot in place of a cluster, give --snapshot"
	offer := func(format string) string {
		if e.offers == nil || !e.offers("snapshot") {
			return ""
		}
		return fmt.Sprintf(format, orSnapshot)
	}
	raw, err := e.kube.ToRawKubeConfigLoader().RawConfig()
	if err == nil && len(raw.Clusters) == 0 && *e.kube.APIServer == "" && e.getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil, nil, run.Usagef("no cluster is configured: set KUBECONFIG, or give --kubeconfig or --server%s",
			offer("; %s"))
	}
	if err := e.checkContext(); err != nil {
		return nil, nil, err
	}
	config, err := e.kube.ToRESTConfig()
	if err != nil {
		return nil, nil, run.Usagef("%w%s", err, offer(" (%s)"))
	}
	config.UserAgent = "kubectl-svcproxy/" + readBuildInfo().Version
	// A run asks for a few large lists: the client's own limit for controllers would only delay them.
	config.QPS, config.Burst = 100, 200
	// What admission would warn of is a helper pod's rights, which is no news to anybody.
	config.WarningHandler = rest.NoWarnings{}
	lists := rest.CopyConfig(config)
	lists.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	lists.ContentType = "application/vnd.kubernetes.protobuf"
	lists.Wrap(apiraw.Bound(bounds.APIResponses))
	c, err := kubernetes.NewForConfig(lists)
	if err != nil {
		return nil, nil, run.Usagef("%w", err)
	}
	return c, config, nil
}

// checkContext returns an error where --context names none of the kubeconfig.
func (e *environment) checkContext() error {
	given := *e.kube.Context
	raw, err := e.kube.ToRawKubeConfigLoader().RawConfig()
	if err != nil || given == "" || raw.Contexts[given] != nil {
		return nil //nolint:nilerr // making a client says what is wrong with the kubeconfig
	}
	names := slices.Sorted(maps.Keys(raw.Contexts))
	return run.Usagef("there is no context %q in the kubeconfig: it has %s%s", given,
		cmp.Or(run.Shorten(names), "none"), cluster.DidYouMean(given, names))
}

// addLogFlags adds -v and its like, as kubectl has them.
func addLogFlags(flags *pflag.FlagSet) {
	all := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(all)
	for _, name := range []string{"v", "vmodule"} {
		f := pflag.PFlagFromGoFlag(all.Lookup(name))
		if name == "v" {
			f.Shorthand = "v"
		}
		flags.AddFlag(f)
	}
}

// logTarget is the standard error of the command that runs.
var logTarget atomic.Pointer[terminal.Stream]

// setLoggers makes the loggers of the process, klog's and Go's own, write to logTarget: with -v they print what the API
// server answers. They are the process's, and cannot be set while something logs.
var setLoggers = sync.OnceFunc(func() {
	w := logWriter{}
	// -v is klog's flag, which decides before this logger is asked.
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(w), textlogger.Verbosity(math.MaxInt32))))
	log.SetOutput(w)
})

// logTo has everything that is logged written to a stream.
func logTo(s *terminal.Stream) {
	logTarget.Store(s)
	setLoggers()
}

type logWriter struct{}

func (logWriter) Write(record []byte) (int, error) { return logTarget.Load().Writer().Write(record) }

// kubeFlags calls f for each kubectl flag that was given and that names the same cluster when given again. Credentials
// are none of them: they do not belong into a line that is printed.
func (e *environment) kubeFlags(f func(name, value string)) {
	for _, flag := range []struct {
		name  string
		value *string
	}{
		{"kubeconfig", e.kube.KubeConfig},
		{"context", e.kube.Context},
		{"cluster", e.kube.ClusterName},
		{"user", e.kube.AuthInfoName},
		{"server", e.kube.APIServer},
	} {
		if flag.value != nil && *flag.value != "" {
			f(flag.name, *flag.value)
		}
	}
}
