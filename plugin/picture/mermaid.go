// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
)

// mermaidClasses are the colours of the states: dark text on a light background, which can be read on light and on dark
// pages.
const mermaidClasses = `  classDef plain fill:#f4f5f7,stroke:#5c6670,color:#123
  classDef right fill:#e6f4ea,stroke:#1e7e34,color:#123
  classDef intended fill:#e3f2fd,stroke:#0b6aa8,color:#123
  classDef unsure fill:#fff4d6,stroke:#8a6100,color:#123
  classDef off fill:#fff4d6,stroke:#8a6100,color:#123
  classDef broken fill:#fde7e9,stroke:#b3261e,color:#123,stroke-width:2px
`

// mermaidText makes a text safe inside a quoted label (https://mermaid.js.org/syntax/flowchart.html, "Entity codes to
// escape characters"). Besides quotes these are what would start an entity, a tag, a Markdown string, or a comment or
// directive (%%).
var mermaidText = strings.NewReplacer(
	`#`, `#35;`, `"`, `#quot;`, `<`, `#lt;`, `>`, `#gt;`, `&`, `#amp;`, "`", `#96;`, `%`, `#37;`, `\`, `#92;`,
)

func mermaidLabel(lines ...string) string {
	safe := make([]string, len(lines))
	for i, l := range lines {
		safe[i] = mermaidText.Replace(plaintext.Clean(l))
	}
	return `"` + strings.Join(safe, "<br>") + `"`
}

// Mermaid writes drawings as a flowchart, one subgraph for each, and what was left out of them (more, in words).
func Mermaid(b *bytes.Buffer, drawings []Drawing, more string) {
	g := graphOf(drawings, more)
	b.WriteString("flowchart LR\n")
	for i := range g.clusters {
		c := &g.clusters[i]
		fmt.Fprintf(b, "  subgraph p%d[%s]\n    direction LR\n", i+1, mermaidLabel(c.label))
		for _, v := range c.vertices {
			open, end := "[", "]"
			switch v.shape {
			case shapeOrigin:
				open, end = "([", "])"
			case shapeEnd:
				open, end = "(", ")"
			case shapeFork:
				open, end = "{{", "}}"
			case shapeStage:
			}
			fmt.Fprintf(b, "    %s%s%s%s:::%s\n", v.id, open, mermaidLabel(v.lines...), end, v.class)
		}
		for _, e := range c.edges {
			arrow := "-->"
			if e.dashed {
				arrow = "-.->"
			}
			if e.label != "" {
				arrow += "|" + mermaidLabel(e.label) + "|"
			}
			fmt.Fprintf(b, "    %s %s %s\n", e.from, arrow, e.to)
		}
		b.WriteString("  end\n")
	}
	if g.more != "" {
		fmt.Fprintf(b, "  more[%s]:::plain\n", mermaidLabel(g.more))
	}
	b.WriteString(mermaidClasses)
}
