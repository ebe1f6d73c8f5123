// SPDX-License-Identifier: Apache-2.0

package gen

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// silent requires that the judgement of the node finds nothing wrong where kube-proxy's words are missing, whatever
// configuration it has: what the rules do not show is Unknown, and named.
func (c *checker) silent(r Rules) {
	files := c.w.Files(r)
	for _, name := range []string{snapshot.ConfigzFile, snapshot.ProxyModeFile, snapshot.MetricsFile} {
		delete(files, name)
	}
	cluster, _ := c.w.Snapshot(r)
	got := judge.Files(cluster, snapshot.NewNode(nodeName, files),
		judge.Request{Backwards: true, Matching: true, PerPathService: true})
	if got.Error != "" {
		c.differ("judged without kube-proxy's words: %s", got.Error)
	}
	values := make([]string, 0, len(got.Mode.Values))
	for _, v := range got.Mode.Values {
		values = append(values, v.Name+" "+v.Value+" ("+v.Source+" "+v.Detail+")")
	}
	wrong := func(fs []report.Finding) {
		for _, f := range fs {
			if f.Severity == report.Error {
				c.differ("judged without kube-proxy's words: %s %s: %s; values: %s", f.Code, f.Subject, f.Message,
					strings.Join(values, ", "))
			}
		}
	}
	wrong(got.Findings)
	for i := range got.Paths {
		p := &got.Paths[i]
		c.res.Silent++
		switch {
		case p.Verdict == report.Mismatch:
			if want, ok := c.expected(p); !ok || want.Unsure == "" {
				wrong(p.Findings)
			}
		case p.Verdict == report.Unknown && slices.ContainsFunc(p.Findings,
			func(f report.Finding) bool { return f.Code == judge.ConfigUnknown }):
			c.res.SilentUnknown++
		}
	}
}
