// SPDX-License-Identifier: Apache-2.0

package command

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// source says where a report comes from. age is how old a snapshot is, in a few words; "" where that is not known.
func (e *environment) source(s *run.Session, nodes []report.NodeReport) (out *report.Source, age string) {
	out = &report.Source{
		Tool: "kubectl-svcproxy " + readBuildInfo().Version, Command: commandLine(e.args), Nodes: []string{},
	}
	for i := range nodes {
		out.Nodes = append(out.Nodes, nodes[i].Node)
	}
	if s.Live() {
		out.ReadAt = s.Now().UTC().Format(time.RFC3339)
		out.Context, out.Cluster = e.cluster()
		return out, ""
	}
	path, meta, err := s.Snapshot()
	out.Snapshot = path
	if err != nil || meta.CreatedAt.IsZero() {
		return out, "" // nothing is judged by it
	}
	out.MadeAt, out.MadeBy = meta.CreatedAt.UTC().Format(time.RFC3339), meta.Tool
	if since := time.Since(meta.CreatedAt); since > 0 {
		age = duration.HumanDuration(since)
	}
	return out, age
}

// cluster names what is contacted, by the names of the kubeconfig; both are empty where it has none, as in a pod.
func (e *environment) cluster() (context, cluster string) {
	raw, err := e.kube.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "", "" // the client would not have been made
	}
	if context = *e.kube.Context; context == "" {
		context = raw.CurrentContext
	}
	if c := raw.Contexts[context]; c != nil {
		cluster = c.Cluster
	}
	if given := *e.kube.ClusterName; given != "" {
		cluster = given
	}
	return context, cluster
}

// secretFlags are the flags whose values are credentials.
var secretFlags = []string{"--token", "--password"}

// commandLine is the command line, to be pasted again. Credentials are replaced.
func commandLine(args []string) string {
	const hidden = "REDACTED"
	words := make([]string, 1, 1+len(args))
	words[0] = name
	for i, arg := range args {
		flag, _, hasValue := strings.Cut(arg, "=")
		switch {
		case i > 0 && slices.Contains(secretFlags, args[i-1]):
			arg = hidden
		case hasValue && slices.Contains(secretFlags, flag):
			arg = flag + "=" + hidden
		case strings.Contains(arg, "://"):
			arg = withoutPassword(arg)
		}
		words = append(words, report.ShellWord(arg))
	}
	return strings.Join(words, " ")
}

// withoutPassword hides the password of a URL, which may be the value of a flag.
func withoutPassword(arg string) string {
	flag, value := "", arg
	if before, after, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "--") {
		flag, value = before+"=", after
	}
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return flag + "URL"
	case u.User == nil:
		return arg
	}
	return flag + u.Redacted()
}
