// SPDX-License-Identifier: Apache-2.0

package print

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// reportObject makes a report a runtime.Object, which is what cli-runtime's printers take. The trace packages stay free
// of it. As the report is embedded, its JSON is the report's own, field for field and in the same order.
type reportObject struct {
	*report.Report
}

func (o *reportObject) GetObjectKind() schema.ObjectKind { return kindOf(o.APIVersion, o.Kind) }

func (o *reportObject) DeepCopyObject() runtime.Object {
	out := &reportObject{&report.Report{}}
	deepCopy(o.Report, out.Report)
	return out
}

// fixedKind is the kind of a report, which nobody sets.
type fixedKind schema.GroupVersionKind

// kindOf makes the schema.ObjectKind of a report.
func kindOf(apiVersion, kind string) schema.ObjectKind {
	return fixedKind(schema.FromAPIVersionAndKind(apiVersion, kind))
}

// SetGroupVersionKind does nothing: the kind is the report's.
func (fixedKind) SetGroupVersionKind(schema.GroupVersionKind) {}

func (k fixedKind) GroupVersionKind() schema.GroupVersionKind { return schema.GroupVersionKind(k) }

// deepCopy copies by way of JSON; a share is written with as many digits as it takes to read the same number again.
func deepCopy(from, to any) {
	data, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		panic(err) // types of strings, numbers and lists of them always pass
	}
}
