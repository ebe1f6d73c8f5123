// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/infer"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// values are kube-proxy's values with their sources, and what may be in the place of those that are not known.
type values struct {
	sources map[kubeproxy.Setting]origin
	list    []kubeproxy.Value
	// open are the settings of which neither kube-proxy nor its rules tell the value.
	open []question
	// differing are those that a file names otherwise than all rules show.
	differing []issue
	worlds    worlds
}

// origin is where the value of a setting was found.
type origin struct {
	source kubeproxy.Source
	detail string
}

// question is a setting that is not known.
type question struct {
	setting kubeproxy.Setting
	answers []answer // that are allowed; the first is the one that the node is judged by
	text    string   // the answers for people; "": those of all
}

// answer is a value that a setting may have.
type answer struct {
	text   string
	config kubeproxy.Config // of which the setting counts; of SettingVersion the version and the feature gates
}

// configSources are the whole configurations by their name.
var configSources = map[string]origin{
	snapshot.ConfigzFile:     {kubeproxy.FromConfigz, snapshot.ConfigzFile},
	snapshot.ProxyConfigFile: {kubeproxy.FromFile, snapshot.ProxyConfigFile},
}

// originOf is the origin of a whole configuration by its source; the zero origin of one that is none.
func originOf(source string) origin {
	if strings.HasPrefix(source, kubeproxy.ConfigMapPrefix) {
		return origin{kubeproxy.FromConfigMap, source}
	}
	return configSources[source]
}

// running tells whether a source is the running process, and not a file that may have been changed since it started.
func (o origin) running() bool {
	return o.source == kubeproxy.FromConfigz || o.source == kubeproxy.FromFlags
}

// noteSources notes where the settings of the configuration were found, and takes over what kube-proxy's command line
// tells: that of a kube-proxy which was started without --config goes before files, since it has read none.
func (n *node) noteSources() {
	n.values.sources = map[kubeproxy.Setting]origin{}
	whole := originOf(n.config.Source)
	if whole.source == "" {
		whole = origin{kubeproxy.NotKnown, ""}
	}
	f := n.Flags
	for _, s := range append(kubeproxy.Settings(""), modeSettings()...) {
		from := whole
		switch {
		case f == nil || whole.running() || !f.Tells(s):
		case f.Program == kubeproxy.Process || whole.source == kubeproxy.NotKnown:
			n.config.Take(s, &f.Config)
			from = origin{kubeproxy.FromFlags, "command line of " + f.Program}
		}
		n.values.sources[s] = from
	}
	if f == nil || whole.running() || f.ConfigFile != "" {
		return
	}
	if whole.source == kubeproxy.NotKnown || f.Program == kubeproxy.Process {
		n.config.HostnameOverride, n.config.BindAddress = f.Config.HostnameOverride, f.Config.BindAddress
		if f.Tells(kubeproxy.SettingMode) && checkMode(f.Config.Mode) == nil {
			n.config.Mode = f.Config.Mode
		}
		if whole.source == kubeproxy.NotKnown {
			n.config.Source = snapshot.FlagsFile
		}
	}
}

// modeSettings are the settings that count in some modes alone.
func modeSettings() []kubeproxy.Setting {
	out := make([]kubeproxy.Setting, 0, len(modes))
	for _, m := range modes {
		out = append(out, kubeproxy.Settings(m.name())...)
	}
	return out
}

// settle takes from the rules what nothing else tells of the configuration, and what all of them show otherwise than a
// file says.
func (n *node) settle() {
	n.questionMode()
	var facts map[kubeproxy.Setting]infer.Fact
	told := func(s kubeproxy.Setting) bool { return n.values.sources[s].running() }
	if settings := kubeproxy.Settings(n.config.Mode); slices.ContainsFunc(settings, not(told)) {
		facts = infer.Configuration(n.evidence())
	}
	for _, s := range kubeproxy.Settings(n.config.Mode) {
		from := n.values.sources[s]
		fact, shown := facts[s]
		shown = shown && len(fact.Allowed) > 0
		switch {
		case from.running():
		case shown && fact.Known && from.source == kubeproxy.NotKnown:
			n.config.Take(s, &fact.Allowed[0])
			from = origin{kubeproxy.FromRules, fact.Detail}
		case from.source != kubeproxy.NotKnown:
			if shown && fact.Known && n.differs(s, &fact) {
				n.values.differing = append(n.values.differing, n.notApplied(s, from, &fact))
				n.config.Take(s, &fact.Allowed[0])
				from = origin{kubeproxy.FromRules, fact.Detail}
			}
		case shown:
			n.config.Take(s, &fact.Allowed[0])
			q := question{setting: s}
			for i := range fact.Allowed {
				q.answers = append(q.answers, answer{fact.Allowed[i].Text(s), fact.Allowed[i]})
			}
			n.values.open = append(n.values.open, q)
			from.detail = fact.Detail
		default: // no path depends on it
			from.detail = fact.Detail
		}
		n.values.sources[s] = from
	}
	if len(facts[kubeproxy.DetectLocal].Allowed) > 0 && n.config.Source == kubeproxy.SourceDefaults {
		n.config.Source = string(kubeproxy.FromRules)
	}
}

func not[T any](f func(T) bool) func(T) bool { return func(v T) bool { return !f(v) } }

// questionMode leaves the mode open where nothing but rules tells it, and those of several modes are live.
func (n *node) questionMode() {
	live := held(n.State)
	if n.Proxy.Reported != "" || n.shown.ConfigSource != string(kubeproxy.NotKnown) || len(live) < 2 || n.Flags != nil {
		return
	}
	first := answer{n.mode.name(), kubeproxy.Config{Mode: n.mode.name()}}
	q := question{setting: kubeproxy.SettingMode, answers: []answer{first}}
	for _, m := range live {
		if m != n.mode {
			q.answers = append(q.answers, answer{m.name(), kubeproxy.Config{Mode: m.name()}})
		}
	}
	n.values.open = append(n.values.open, q)
}

// isOpen returns the question of a setting; nil where its value is known.
func (n *node) isOpen(s kubeproxy.Setting) *question {
	for i := range n.values.open {
		if n.values.open[i].setting == s {
			return &n.values.open[i]
		}
	}
	return nil
}

// evidence is what the rules' configuration is inferred from.
func (n *node) evidence() *infer.Input {
	in := &infer.Input{State: n.State, Mode: n.config.Mode, PodCIDRs: n.podCIDRs}
	for _, p := range n.pods() {
		for _, a := range []netip.Addr{p.v4, p.v6} {
			if a.IsValid() {
				in.Pods = append(in.Pods, a)
			}
		}
	}
	for _, v4 := range []bool{true, false} {
		if a := n.internalIP(v4); a.IsValid() {
			in.NodeIPs = append(in.NodeIPs, a)
		}
	}
	for _, svc := range n.cluster.Services {
		for i := range svc.Spec.Ports {
			if p := &svc.Spec.Ports[i]; p.NodePort != 0 {
				in.NodePorts = append(in.NodePorts, infer.NodePort{
					Protocol: string(p.Protocol), Port: uint16(p.NodePort), //nolint:gosec // a port
				})
			}
		}
	}
	return in
}

// differs tells whether rules were written with another value of a setting than the configuration has: one with which
// something else is to be expected.
func (n *node) differs(s kubeproxy.Setting, fact *infer.Fact) bool {
	other := n.config
	other.Take(s, &fact.Allowed[0])
	if s != kubeproxy.DetectLocal && s != kubeproxy.NodePortRanges {
		return other.Text(s) != n.config.Text(s)
	}
	a, b := n.withoutServices(n.config), n.withoutServices(other)
	for _, f := range nodestate.Families {
		if !slices.Contains(fact.Families, f) {
			continue
		}
		v6 := f == netfilter.IPv6
		if s == kubeproxy.NodePortRanges && !slices.Equal(a.ServedAt(v6), b.ServedAt(v6)) {
			return true
		}
		x, y := a.PodMatch(v6), b.PodMatch(v6)
		if s == kubeproxy.DetectLocal && ((x == nil) != (y == nil) || x != nil && *x != *y) {
			return true
		}
	}
	return false
}

func (n *node) withoutServices(c kubeproxy.Config) *expect.Node {
	return expect.New(expect.Inputs{Node: n.object, NodeName: n.Name, Config: c, Addresses: n.net.Addresses()})
}

// ConfigNotApplied says that kube-proxy has written its rules with another configuration than its file has.
const ConfigNotApplied = "ConfigNotApplied"

var _ = register(kind{
	code: ConfigNotApplied, severity: warning, scope: onNode,
	by: &detector{stage: stageStatus, node: func(n *node) []issue { return n.values.differing }},
	remedy: advice("kube-proxy reads its configuration when it starts: where the file is right, restart kube-proxy on "+
		"{node}; to see what it runs with, ask the process", restartProxy,
		command{line: "curl -s http://127.0.0.1:10249/configz", onNode: true, when: "to see what it runs with"}),
})

func (n *node) notApplied(s kubeproxy.Setting, from origin, fact *infer.Fact) issue {
	return issue{
		code: ConfigNotApplied, subject: string(s),
		expected: n.config.Text(s) + " (" + from.detail + ")", actual: fact.Allowed[0].Text(s) + " (rules)",
		evidence: say(fact.Detail), predicate: true,
		message: "in the rules is another than in the file: kube-proxy was not restarted since it was changed, or is not " +
			"started with it; the rules are judged by what they all show",
	}
}

// listValues lists kube-proxy's values for the report.
func (n *node) listValues() {
	add := func(s kubeproxy.Setting, text string, from origin) {
		v := kubeproxy.Value{Setting: s, Text: text, Source: from.source, Detail: from.detail}
		n.values.list = append(n.values.list, v)
	}
	mode := origin{kubeproxy.FromProxyMode, snapshot.ProxyModeFile}
	switch q := n.isOpen(kubeproxy.SettingMode); {
	case q != nil:
		mode = origin{kubeproxy.NotKnown, "may be " + q.texts()}
	case n.Proxy.Reported != "":
	case n.shown.Actual != "":
		mode = origin{kubeproxy.FromRules, ""}
	default:
		if mode = originOf(n.shown.ConfigSource); mode.source == "" {
			mode.source = kubeproxy.NotKnown
		}
	}
	if mode.source == kubeproxy.NotKnown {
		add(kubeproxy.SettingMode, "", mode)
	} else {
		add(kubeproxy.SettingMode, n.config.Mode, mode)
	}
	version := n.values.sources[kubeproxy.SettingVersion]
	text := n.shown.KubeProxyVersion
	if q := n.isOpen(kubeproxy.SettingVersion); q != nil {
		version.detail = "may be " + q.texts()
	}
	add(kubeproxy.SettingVersion, text, version)
	for _, s := range kubeproxy.Settings(n.config.Mode) {
		from := n.values.sources[s]
		text := n.config.Text(s)
		if from.source == kubeproxy.NotKnown {
			text = ""
			if q := n.isOpen(s); q != nil {
				from.detail = strings.TrimSuffix("may be "+q.texts()+"; "+from.detail, "; ")
			}
		}
		add(s, text, from)
	}
	for i := range n.values.list {
		v := &n.values.list[i]
		n.shown.Values = append(n.shown.Values, report.Value{
			Name: string(v.Setting), Value: v.Text, Source: string(v.Source), Detail: v.Detail,
		})
	}
}

// texts lists the values that a setting may have, for people.
func (q *question) texts() string {
	if q.text != "" {
		return q.text
	}
	out := make([]string, len(q.answers))
	for i := range q.answers {
		out[i] = q.answers[i].text
	}
	return strings.Join(out, " or ")
}

// unsettled names the settings that are not known, for people; "" where there are none that matter.
func (n *node) unsettled() string {
	out := make([]string, 0, len(n.values.open))
	for i := range n.values.open {
		out = append(out, fmt.Sprintf("%s (%s)", n.values.open[i].setting, n.values.open[i].texts()))
	}
	return strings.Join(out, ", ")
}
