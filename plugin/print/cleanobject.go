// SPDX-License-Identifier: Apache-2.0

package print

import (
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
)

// cleaned is an object of which every string is one line that may be shown. Templates get it: their output is text,
// without escapes, in which a newline of a value could not be told from one of the template.
type cleaned struct {
	of     runtime.Object
	fields map[string]any
}

// cleanObject returns an object with clean strings, keys included. Numbers are float64, as cli-runtime's printers have
// them.
func cleanObject(o runtime.Object) (runtime.Object, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	c := &cleaned{of: o}
	if err := json.Unmarshal(data, &c.fields); err != nil {
		return nil, err
	}
	cleanValue(c.fields)
	return c, nil
}

// cleanValue cleans what a decoded JSON value has in it, and returns it.
func cleanValue(v any) any {
	switch v := v.(type) {
	case string:
		return plaintext.Clean(v)
	case []any:
		for i := range v {
			v[i] = cleanValue(v[i])
		}
	case map[string]any:
		for _, k := range slices.Collect(maps.Keys(v)) {
			x := v[k]
			delete(v, k)
			v[plaintext.Clean(k)] = cleanValue(x)
		}
	}
	return v
}

// MarshalJSON returns the clean fields.
func (c *cleaned) MarshalJSON() ([]byte, error) { return json.Marshal(c.fields) }

// GetObjectKind returns the kind of the object.
func (c *cleaned) GetObjectKind() schema.ObjectKind { return c.of.GetObjectKind() }

// DeepCopyObject returns the object itself, which nobody changes.
func (c *cleaned) DeepCopyObject() runtime.Object { return c }
