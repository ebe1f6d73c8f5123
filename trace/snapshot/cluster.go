// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/svcproxy/kubectl-svcproxy/internal/parallel"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// Cluster holds the API objects of a snapshot.
type Cluster struct {
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Nodes          []*corev1.Node
	Pods           []*corev1.Pod
	ConfigMaps     []*corev1.ConfigMap
	Endpoints      []*Endpoints // of Services in Mirrored; others do not matter
	// Missing names the kinds that were not collected ("services", "endpointslices", "nodes", "pods", "configmaps",
	// "endpoints").
	Missing []string
	// Unread has the reasons why files of kinds that may be missing could not be read, by the names of the files
	// ("cluster/pods.json"); the kinds are in Missing, too.
	Unread map[string]string
	// Left are Services of which not all EndpointSlices are among these, and why; a snapshot has none.
	Left map[types.NamespacedName]string `json:"-"`
	// Listed is where a watch of the objects goes on from; a snapshot has none.
	Listed Listed
}

// Listed has the resourceVersion of the list of each kind that is watched.
type Listed struct{ Services, EndpointSlices string }

// kind is one file of cluster/.
type kind struct {
	name     string // of the file, without its extension
	item     string // kind of its objects
	required bool
	decode   func(c *Cluster, data []byte) error
	stream   func(c *Cluster, r io.Reader) error // decode, for a list that there is nothing wrong with
	items    func(c *Cluster) []any              // as kubectl get prints them
}

var kinds = []kind{
	{"services", "Service", true, func(c *Cluster, data []byte) (err error) {
		c.Services, err = decode[corev1.Service](data, "Service")
		return err
	}, func(c *Cluster, r io.Reader) (err error) {
		c.Services, err = decodeParts[corev1.Service](r, "Service")
		return err
	}, func(c *Cluster) []any { return typed(c.Services, corev1.SchemeGroupVersion.WithKind("Service")) }},
	{"endpointslices", "EndpointSlice", true, func(c *Cluster, data []byte) (err error) {
		c.EndpointSlices, err = decode[discoveryv1.EndpointSlice](data, "EndpointSlice")
		return err
	}, func(c *Cluster, r io.Reader) (err error) {
		c.EndpointSlices, err = decodeParts[discoveryv1.EndpointSlice](r, "EndpointSlice")
		return err
	}, func(c *Cluster) []any {
		return typed(c.EndpointSlices, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
	}},
	{"nodes", "Node", false, func(c *Cluster, data []byte) (err error) {
		c.Nodes, err = decode[corev1.Node](data, "Node")
		return err
	}, func(c *Cluster, r io.Reader) (err error) {
		c.Nodes, err = decodeParts[corev1.Node](r, "Node")
		return err
	}, func(c *Cluster) []any { return typed(c.Nodes, corev1.SchemeGroupVersion.WithKind("Node")) }},
	{"pods", "Pod", false, func(c *Cluster, data []byte) (err error) {
		c.Pods, err = decode[corev1.Pod](data, "Pod")
		return err
	}, func(c *Cluster, r io.Reader) (err error) {
		c.Pods, err = decodeParts[corev1.Pod](r, "Pod")
		return err
	}, func(c *Cluster) []any { return typed(c.Pods, corev1.SchemeGroupVersion.WithKind("Pod")) }},
	{"configmaps", "ConfigMap", false, func(c *Cluster, data []byte) (err error) {
		c.ConfigMaps, err = decode[corev1.ConfigMap](data, "ConfigMap")
		return err
	}, func(c *Cluster, r io.Reader) (err error) {
		c.ConfigMaps, err = decodeParts[corev1.ConfigMap](r, "ConfigMap")
		return err
	}, func(c *Cluster) []any { return typed(c.ConfigMaps, corev1.SchemeGroupVersion.WithKind("ConfigMap")) }},
	{"endpoints", "Endpoints", false, func(c *Cluster, data []byte) (err error) {
		c.Endpoints, err = decode[Endpoints](data, "Endpoints")
		return err
	}, func(c *Cluster, r io.Reader) (err error) {
		c.Endpoints, err = decodeParts[Endpoints](r, "Endpoints")
		return err
	}, func(c *Cluster) []any { return typed(c.Endpoints, corev1.SchemeGroupVersion.WithKind("Endpoints")) }},
}

func clusterKind(base string) *kind {
	for i := range kinds {
		for _, ending := range []string{".json", ".yaml", ".yml"} {
			if base == kinds[i].name+ending {
				return &kinds[i]
			}
		}
	}
	return nil
}

// Cluster decodes the cluster's objects. Services and EndpointSlices are required: the error names their file, what was
// expected in it, and where. Other kinds that cannot be read are in Cluster.Unread.
func (s *Snapshot) Cluster() (*Cluster, error) {
	c := &Cluster{}
	errs := make([]error, len(kinds))
	files := make([]string, len(kinds))
	var reading parallel.Group
	for i := range kinds {
		reading.Go(func() { files[i], errs[i] = s.readKind(c, &kinds[i]) })
	}
	reading.Wait()
	for i, err := range errs {
		k := &kinds[i]
		switch {
		case err == nil && files[i] != "":
			continue
		case err != nil && k.required && files[i] != "":
			return nil, fmt.Errorf("%s in %s: %w", files[i], s.path, err)
		case err != nil && k.required:
			return nil, err
		case err != nil:
			if c.Unread == nil {
				c.Unread = map[string]string{}
			}
			c.Unread[files[i]] = strings.Join(strings.Fields(err.Error()), " ")
		}
		c.Missing = append(c.Missing, k.name)
	}
	return c, nil
}

// readKind reads the objects of a kind. file is the one that has them, "" where there is none.
func (s *Snapshot) readKind(c *Cluster, k *kind) (file string, err error) {
	for _, ending := range []string{".json", ".yaml", ".yml"} {
		name := "cluster/" + k.name + ending
		if o := s.files[name]; o != nil {
			return name, s.readObjects(c, k, name, o)
		}
	}
	if k.required {
		return "", fmt.Errorf("%s has no cluster/%s.json: make it with: kubectl get %s -A -o json", s.path, k.name, k.name)
	}
	return "", nil
}

// decodedInParts is up to how many bytes a list is decoded as it is read: those of some 10,000 Services. Of a larger
// one that is wrong at its end, what was decoded in vain would take too much time and memory.
const decodedInParts = 32 << 20

// readObjects reads a file of the cluster.
func (s *Snapshot) readObjects(c *Cluster, k *kind, name string, o opener) error {
	f := objects
	if path.Ext(name) != ".json" {
		f = objectsIn
	} else if r, err := o.parts(decodedInParts); err == nil {
		// What is wrong with a list is told from the whole. Before that, what was decoded of it makes room.
		if k.stream(c, bounds.ClusterJSON.Reader("it", r)) == nil {
			return nil
		}
		runtime.GC()
	}
	data, err := o.read(f.size)
	if err != nil {
		return err
	}
	if err := f.verify("it", data); err != nil {
		return err
	}
	if path.Ext(name) != ".json" {
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return fmt.Errorf("it is not YAML: %w", err)
		}
		if int64(len(data)) > objects.size {
			return bounds.TooLarge("what its aliases make of it", objects.size)
		}
		if err := objects.verify("it", data); err != nil {
			return err
		}
	}
	return k.decode(c, data)
}

// lenient accepts all that the API server may send: duplicate names and invalid UTF-8, too.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// object is a pointer to an object of the API.
type object[T any] interface {
	*T
	GetName() string
	GetObjectKind() schema.ObjectKind
}

// list is a List as kubectl get prints it.
type list[T any] struct {
	Kind  string   `json:"kind"`
	Items items[T] `json:"items"`
}

// decode reads a List of a kind, as kubectl get prints it, or a single object. Unknown fields are ignored. At 5,000
// Services this is a large part of a run, hence the faster library.
func decode[T any, P object[T]](data []byte, want string) ([]*T, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("it is empty, where a List of %s was expected", want)
	}
	var l list[T]
	if err := json.Unmarshal(data, &l, lenient); err != nil {
		if limit, ok := errors.AsType[*bounds.Error](err); ok {
			return nil, limit
		}
		if other := kindOf(data); other != want && other != "" {
			return nil, fmt.Errorf("it holds objects of kind %q, where %s was expected", other, want)
		}
		return nil, badJSON(err)
	}
	switch l.Kind {
	case want:
		one := new(T)
		if err := json.Unmarshal(data, one, lenient); err != nil {
			return nil, badJSON(err)
		}
		l.Items = []*T{one}
	case "List", want + "List":
	default:
		return nil, fmt.Errorf("it holds kind %q, where a List of %s was expected", l.Kind, want)
	}
	return checked[T, P](l.Items, want)
}

// decodeParts is decode for a List that is read in parts. An error does not say what is wrong.
func decodeParts[T any, P object[T]](r io.Reader, want string) ([]*T, error) {
	var l list[T]
	if err := json.UnmarshalRead(r, &l, lenient); err != nil {
		return nil, err
	}
	if l.Kind != "List" && l.Kind != want+"List" {
		return nil, errors.ErrUnsupported
	}
	return checked[T, P](l.Items, want)
}

// checked returns the items of a List, if they have names and are of the kind that was expected.
func checked[T any, P object[T]](all items[T], want string) ([]*T, error) {
	for i, item := range all {
		if item == nil {
			return nil, fmt.Errorf("item %d has no name", i)
		}
		if other := P(item).GetObjectKind().GroupVersionKind().Kind; other != "" && other != want {
			return nil, fmt.Errorf("it holds objects of kind %q, where %s was expected", other, want)
		}
		if P(item).GetName() == "" {
			return nil, fmt.Errorf("item %d has no name", i)
		}
	}
	return all, nil
}

// items are the objects of a List, bounds.Objects at most.
type items[T any] []*T

// UnmarshalJSONFrom reads a list.
func (l *items[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '[':
	default:
		return json.UnmarshalDecode(dec, (*[]*T)(l)) // its error says what was expected
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		if len(*l) == bounds.Objects {
			return bounds.Errorf("it holds more than %d objects: at most %d were expected", bounds.Objects, bounds.Objects)
		}
		var item *T
		if err := json.UnmarshalDecode(dec, &item); err != nil {
			return err
		}
		*l = append(*l, item)
	}
	_, err := dec.ReadToken()
	return err
}

// kindOf returns the kind of the first item, "" where there is none.
func kindOf(data []byte) string {
	var l struct {
		Items []struct {
			Kind string `json:"kind"`
		} `json:"items"`
	}
	if err := json.Unmarshal(data, &l, lenient); err != nil || len(l.Items) == 0 {
		return ""
	}
	return l.Items[0].Kind
}

// badJSON describes in one line what is wrong with a JSON text.
func badJSON(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the JSON is cut off: %w", err)
	}
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if syntax.ByteOffset == 0 {
			return fmt.Errorf("it is not JSON, from its first byte on: %w", syntax)
		}
		return fmt.Errorf("it is not JSON: %w", syntax)
	}
	return err
}

// The annotations that flannel keeps on Nodes (flannel-io/flannel, pkg/subnet/kube/annotations.go).
const (
	FlannelBackendType = "flannel.alpha.coreos.com/backend-type"
	FlannelBackendData = "flannel.alpha.coreos.com/backend-data"
	FlannelPublicIP    = "flannel.alpha.coreos.com/public-ip"
)

// NodeAnnotations are those of Nodes by which the network between them is judged.
var NodeAnnotations = []string{FlannelBackendType, FlannelBackendData, FlannelPublicIP}

// StaticPodAnnotations are those by which a pod is told that the kubelet runs from a manifest of its own: the API has a
// mirror of it (kubernetes, pkg/kubelet/types/pod_update.go: ConfigSourceAnnotationKey, ConfigMirrorAnnotationKey).
var StaticPodAnnotations = []string{"kubernetes.io/config.source", "kubernetes.io/config.mirror"}
