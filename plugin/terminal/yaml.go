// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
)

// quoteUnsafe writes the scalars of a YAML document that have unsafe characters or several lines in double quotes: the
// other styles have no escapes. A document without such scalars stays as it is, byte by byte.
func quoteUnsafe(text []byte) ([]byte, error) {
	if safetext.CleanLines(string(text)) == string(text) && !bytes.Contains(text, []byte("|")) {
		return text, nil // only a block scalar has several lines
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("the YAML cannot be read again: %w", err)
	}
	if !quoteScalars(&doc) {
		return text, nil
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(&doc); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// quoteScalars quotes the scalars of a node, and tells whether there are any to quote.
func quoteScalars(n *yaml.Node) (quoted bool) {
	if n.Kind == yaml.ScalarNode && safetext.HasUnsafe(n.Value) {
		n.Style, quoted = yaml.DoubleQuotedStyle, true
	}
	for _, c := range n.Content {
		quoted = quoteScalars(c) || quoted
	}
	return quoted
}
