// SPDX-License-Identifier: Apache-2.0

//go:build fleet

package fleet

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/watch"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// publish writes what the agents of all nodes would have written. One agent runs for each state of nodes, on the first
// of them; those of the others would say the same.
func (c *controlPlane) publish(t *testing.T, fleet []node, files texts) {
	t.Helper()
	c.makeKind(t)
	said := map[state]*nodereport.Object{}
	for i := range fleet {
		n := &fleet[i]
		of := n.state
		if of != broken {
			of = right
		}
		if said[of] == nil {
			said[of] = c.agent(t, n, files)
		}
	}
	api := watch.NewReports(c.client)
	now := time.Now()
	err := sideBySide(len(fleet), func(i int) error {
		n := &fleet[i]
		if n.state == unwatched {
			return nil
		}
		object, err := c.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		o := *said[right]
		if n.state == broken {
			o = *said[broken]
		}
		o.Name = n.name
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.name, UID: object.UID}}
		// Agents do not write at the same moment. Of a node that is not ready its agent has not written since.
		age := time.Duration(i%170) * time.Second
		if n.state == notReady {
			age = time.Hour + time.Duration(i)*time.Second
		}
		at := metav1.Time{Time: now.Add(-age)}
		o.Status.RenewedAt, o.Status.JudgedAt = at, &at
		_, err = api.Create(t.Context(), &o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// agent runs the agent of a node until it has published what it finds.
func (c *controlPlane) agent(t *testing.T, n *node, files texts) *nodereport.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out := make(chan *nodereport.Object, 1)
	agent, err := watch.New(watch.Options{
		Node: n.name, Client: c.client, Reports: written{out}, Share: 1, Full: 2 * time.Second, Poll: 2 * time.Second,
		Read: func(context.Context) (*snapshot.Node, error) {
			data := map[string][]byte{}
			for name, text := range files.files(n) {
				data[name] = []byte(text)
			}
			return snapshot.NewNode(n.name, data), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	ended := make(chan struct{})
	go func() {
		_ = agent.Run(ctx) // it ends with the context
		close(ended)
	}()
	select {
	case o := <-out:
		cancel()
		<-ended
		t.Logf("the agent of %s has published after %v", n.name, time.Since(begun).Round(time.Millisecond))
		return o
	case <-ctx.Done():
		t.Fatalf("the agent of %s has published nothing", n.name)
		return nil
	}
}

// written takes what an agent publishes.
type written struct{ out chan *nodereport.Object }

func (w written) Get(context.Context, string) (*nodereport.Object, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: nodereport.Resource}, "")
}

func (w written) Create(_ context.Context, o *nodereport.Object) (*nodereport.Object, error) {
	select {
	case w.out <- o:
	default:
	}
	return o, nil
}

func (w written) Update(ctx context.Context, o *nodereport.Object) (*nodereport.Object, error) {
	return w.Create(ctx, o)
}

// makeKind makes the kind NodeReport as deploy/watch does.
func (c *controlPlane) makeKind(t *testing.T) {
	t.Helper()
	crd, err := os.ReadFile("../../deploy/watch/crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	request := c.client.Discovery().RESTClient().Verb(http.MethodPost)
	err = request.AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
		SetHeader("Content-Type", "application/yaml").SetHeader("Accept", "application/json").Body(crd).
		Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		// Before the kind is served, any answer is that there is no such page.
		_, err := c.client.Discovery().RESTClient().Get().AbsPath(nodereport.Path).
			SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
