// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// imageVersion is the version in the tag of an image of kube-proxy's: "registry.k8s.io/kube-proxy:v1.36.3".
var imageVersion = lazyregexp.New(`:v?(1\.\d+\.\d+[^@/:]*)(@[^/]*)?$`)

// noteVersion notes kube-proxy's version: what it tells itself, else that of its pod's image.
func (n *node) noteVersion() {
	from := origin{kubeproxy.NotKnown, ""}
	n.config.Version = n.Proxy.Version
	if n.config.Version != "" {
		from = origin{kubeproxy.FromMetrics, snapshot.MetricsFile}
	} else if m := imageVersion().FindStringSubmatch(n.image()); m != nil {
		n.config.Version = "v" + m[1]
		from = origin{kubeproxy.FromImage, n.image()}
	}
	n.values.sources[kubeproxy.SettingVersion] = from
}

// enoughServices is how many Services have to tell one behaviour from another before it is ruled out.
const enoughServices = 3

// mostAlike bounds how many paths are walked that tell the same behaviours apart.
const mostAlike = 48

// settleVersion finds out from the rules as which version of kube-proxy, with which feature gates, they were written,
// where that is not known. A behaviour is ruled out by several Services whose rules nearly all follow another one, or
// by a rule that it has nothing of; what is left is an open question.
func (n *node) settleVersion() {
	gates := n.values.sources[kubeproxy.FeatureGates].source != kubeproxy.NotKnown
	setting := kubeproxy.SettingVersion
	if n.config.Version != "" {
		setting = kubeproxy.FeatureGates
	}
	profiles := expect.Profiles(n.config, n.Layout(), gates)
	if n.config.Version != "" && len(profiles) == 1 {
		if !gates { // this version has none that could be set
			n.values.sources[kubeproxy.FeatureGates] = origin{
				kubeproxy.NotKnown, "none of this version decides what is programmed",
			}
		}
		return
	}
	left := n.contest(profiles)
	take(&n.config, setting, &left[0].Config)
	if len(left) > 1 {
		q := question{setting: setting, text: expect.Names(left)}
		for i := range left {
			q.answers = append(q.answers, answer{left[i].Name, left[i].Config})
		}
		n.values.open = append(n.values.open, q)
	} else {
		n.values.sources[setting] = origin{kubeproxy.FromRules, "behaves as " + left[0].Name}
	}
	n.expect()
	n.survey = n.surveyed()
}

// contest returns the behaviours that the rules leave, in their order.
func (n *node) contest(profiles []expect.Profile) []expect.Profile {
	nodes := make([]*node, len(profiles))
	for i := range profiles {
		w := *n
		take(&w.config, kubeproxy.SettingVersion, &profiles[i].Config)
		w.values.open = nil
		w.exp = w.expectation()
		nodes[i] = &w
	}
	c := &contest{
		worker: n.newWorker(&Request{}, false),
		nodes:  nodes, alike: map[string]int{}, better: make([][]int, len(nodes)), shows: make([][]bool, len(nodes)),
	}
	for i := range nodes {
		c.better[i], c.shows[i] = make([]int, len(nodes)), make([]bool, len(nodes))
	}
	for _, svc := range n.cluster.Services {
		if n.stopped() {
			break
		}
		c.service(svc)
	}
	var left []expect.Profile
	for j := range profiles {
		out := false
		for i := range profiles {
			out = out || c.rulesOut(i, j)
		}
		if !out {
			left = append(left, profiles[j])
		}
	}
	if len(left) == 0 {
		return profiles
	}
	return left
}

// image is that of kube-proxy's pod; "" where there is none, or none was read.
func (n *node) image() string {
	if x := n.cluster.proxyPods[n.Name]; x != nil {
		return x.image
	}
	return ""
}
