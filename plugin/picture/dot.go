// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
)

// dotColors are the colours of line and background of each class.
var dotColors = map[string][2]string{
	plainClass: {"#5c6670", "#f4f5f7"},
	"right":    {"#1e7e34", "#e6f4ea"},
	"intended": {"#0b6aa8", "#e3f2fd"},
	"unsure":   {"#8a6100", "#fff4d6"},
	"off":      {"#8a6100", "#fff4d6"},
	"broken":   {"#b3261e", "#fde7e9"},
}

// dotText makes a text safe inside a quoted string (https://graphviz.org/doc/info/lang.html): a backslash begins an
// escape such as \N or \l in labels, and an ampersand an HTML entity.
var dotText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `&`, `&amp;`)

func dotLabel(lines ...string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, l := range lines {
		if i > 0 {
			b.WriteString(`\n`)
		}
		b.WriteString(dotText.Replace(plaintext.Clean(l)))
	}
	b.WriteByte('"')
	return b.String()
}

const dotHeader = `digraph svcproxy {
  rankdir=LR
  charset="UTF-8"
  node [shape=box style="rounded,filled" fontname="sans-serif" fontsize=11]
  edge [fontname="sans-serif" fontsize=10]
`

// Dot writes drawings as a digraph for Graphviz, one cluster for each, and what was left out of them (more, in words).
func Dot(b *bytes.Buffer, drawings []Drawing, more string) {
	g := graphOf(drawings, more)
	b.WriteString(dotHeader)
	for i := range g.clusters {
		c := &g.clusters[i]
		fmt.Fprintf(b, "  subgraph cluster_p%d {\n    label=%s\n", i+1, dotLabel(c.label))
		for _, v := range c.vertices {
			shape := ""
			switch v.shape {
			case shapeOrigin:
				shape = " shape=ellipse"
			case shapeFork:
				shape = " shape=diamond"
			case shapeStage, shapeEnd:
			}
			color := dotColors[v.class]
			label := dotLabel(v.lines...)
			fmt.Fprintf(b, "    %s [label=%s color=%q fillcolor=%q%s]\n", v.id, label, color[0], color[1], shape)
		}
		for _, e := range c.edges {
			style := ""
			if e.dashed {
				style = " style=dashed"
			}
			if e.back { // it has no say in where boxes are put
				style += " constraint=false"
			}
			fmt.Fprintf(b, "    %s -> %s [label=%s%s]\n", e.from, e.to, dotLabel(e.label), style)
		}
		b.WriteString("  }\n")
	}
	if g.more != "" {
		fmt.Fprintf(b, "  more [label=%s shape=plaintext style=\"\"]\n", dotLabel(g.more))
	}
	b.WriteString("}\n")
}
