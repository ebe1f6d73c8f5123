// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	versions "github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// apiServer serves the objects of the snapshot broken; poisoned: with poison in a field of each kind that has it.
// answer, where it is not nil, answers first.
func apiServer(t *testing.T, fields []string, answer func(w http.ResponseWriter, r *http.Request) bool) string {
	t.Helper()
	c := clusterOf(t, broken)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		n.Labels[corev1.LabelHostname] = strings.ToLower(host) // --local is this node
	}
	lists := map[string][]byte{}
	for i := range objectKinds {
		k := &objectKinds[i]
		var paths []leaf
		for _, f := range fields {
			if path, ok := leavesOf(k.typeOf())[f]; ok {
				paths = append(paths, path)
			}
		}
		lists[k.name] = k.list(t, c, paths...)
	}
	lists["namespaces"] = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"NamespaceList","metadata":{},"items":[`+
		`{"metadata":{"name":%s}},{"metadata":{"name":"shop"}}]}`, quoted(t, "shop"+poison))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 - "`+strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return -1 // no client takes such a header
			}
			return r
		}, poison)+`"`)
		if answer != nil && answer(w, r) {
			return
		}
		if strings.HasSuffix(r.URL.Path, "/nodes/worker-1") {
			node := c.Nodes[0].DeepCopy()
			for i := range node.Status.Conditions {
				cond := &node.Status.Conditions[i]
				cond.Reason, cond.Message = poison, poison
			}
			node.APIVersion, node.Kind = "v1", "Node"
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(node); err != nil {
				t.Error(err)
			}
			return
		}
		if data := lists[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]; data != nil && r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			if _, err := w.Write(data); err != nil {
				t.Log(err) // the plugin has ended
			}
			return
		}
		status(t, w, http.StatusNotFound, "NotFound")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// status answers with a refusal of which every string is poisoned.
func status(t *testing.T, w http.ResponseWriter, code int, reason string) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	p := quoted(t, poison)
	fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d,"reason":%q,"message":%s,`+
		`"details":{"name":%s,"kind":%s,"causes":[{"reason":%s,"message":%s,"field":%s}]}}`, code, reason, p, p, p, p, p, p)
}

// peer is a helper that answers what a hostile node would. Its frames are written by hand: the wire's own server would
// clean their texts.
type peer struct {
	hello  string // its first line; "": a good one with a poisoned build
	answer func(p *peerAnswer, method string) error
}

// peerAnswer is one answer of a peer.
type peerAnswer struct {
	out          *flate.Writer
	frames       bytes.Buffer // what was sent, for the hash
	id           uint64
	files, bytes int64
}

// serve ends with the context, as the pipes to a process do.
func (p *peer) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ended := make(chan error, 1)
	go func() { ended <- p.talk(in, out) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *peer) talk(in io.Reader, out io.Writer) error {
	r := bufio.NewReader(in)
	if _, err := r.ReadString('\n'); err != nil {
		return err
	}
	hello := p.hello
	if hello == "" {
		build, err := json.Marshal(poison)
		if err != nil {
			return err
		}
		hello = poison + "\x16svcproxy-wire " + `{"protocol":` + strconv.Itoa(versions.Protocol) + `,"build":` + string(build) + "}\n"
	}
	if _, err := io.WriteString(out, hello); err != nil || p.hello != "" {
		return err // a program that is no helper ends
	}
	w, err := flate.NewWriter(out, flate.BestSpeed)
	if err != nil {
		return err
	}
	for requests := flate.NewReader(r); ; {
		var header [5]byte
		if _, err := io.ReadFull(requests, header[:]); err != nil {
			return nil //nolint:nilerr // the plugin has gone
		}
		payload := make([]byte, binary.BigEndian.Uint32(header[1:]))
		if _, err := io.ReadFull(requests, payload); err != nil {
			return err
		}
		var request struct {
			ID     uint64 `json:"id"`
			Method string `json:"method"`
		}
		if err := json.Unmarshal(payload, &request); err != nil {
			return err
		}
		a := &peerAnswer{out: w, id: request.ID}
		if err := p.answer(a, request.Method); err != nil {
			return err
		}
	}
}

func (a *peerAnswer) frame(kind byte, payload []byte) error {
	header := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	data := slices.Concat(header, payload)
	a.frames.Write(data)
	if _, err := a.out.Write(data); err != nil {
		return err
	}
	return a.out.Flush()
}

func (a *peerAnswer) body(kind byte, body map[string]any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return a.frame(kind, data)
}

func (a *peerAnswer) file(name string, data []byte, unread string) error {
	a.files++
	if unread != "" {
		data = nil
	}
	a.bytes += int64(len(data))
	err := a.body('f', map[string]any{"name": name, "unread": unread})
	for chunk := data; len(chunk) > 0 && err == nil; {
		n := min(len(chunk), 1<<16)
		err = a.frame('c', chunk[:n])
		chunk = chunk[n:]
	}
	return errors.Join(err, a.body('z', map[string]any{"bytes": len(data)}))
}

func (a *peerAnswer) done() error {
	sum := sha256.Sum256(a.frames.Bytes())
	return a.body('d', map[string]any{"id": a.id, "files": a.files, "bytes": a.bytes, "sha256": sum[:]})
}

func (a *peerAnswer) progress() error { return a.body('p', map[string]any{"text": poison}) }

func (a *peerAnswer) refuse() error {
	return a.body('x', map[string]any{"id": a.id, "message": poison})
}

// files answers with the files of the snapshot broken, one of which was not read.
func (a *peerAnswer) filesOf(node *snapshot.Node, unread string) error {
	err := a.progress()
	for _, name := range snapshot.NodeFiles {
		data, ok, fileErr := node.File(name)
		if ok {
			why := ""
			if name == unread {
				why = poison
			}
			err = errors.Join(err, fileErr, a.file(name, data, why))
		}
	}
	return errors.Join(err, a.done())
}

// object answers with one file of JSON.
func (a *peerAnswer) object(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return errors.Join(a.progress(), a.file(wire.ProgramFile, data, ""), a.done())
}

// peers are hostile helpers.
func peers(t *testing.T) map[string]*peer {
	t.Helper()
	_, node := snap.Node(t, broken, "worker-1")
	collects := func(a *peerAnswer) error { return a.filesOf(node, "") }
	after := func(program func(a *peerAnswer, method string) error) *peer {
		return &peer{answer: func(a *peerAnswer, method string) error {
			if method == wire.MethodCollect {
				return collects(a)
			}
			return program(a, method)
		}}
	}
	build := string(quoted(t, poison))
	result := func(r *wire.ProgramResult) *peer {
		return after(func(a *peerAnswer, _ string) error { return a.object(r) })
	}
	return map[string]*peer{
		"no helper":        {hello: poison + poison},
		"another protocol": {hello: "\x16svcproxy-wire {\"protocol\":7,\"build\":" + build + "}\n"},
		"a broken hello":   {hello: "\x16svcproxy-wire {\"protocol\":" + strings.ReplaceAll(poison, "\n", "") + "}\n"},
		"files":            after(func(a *peerAnswer, _ string) error { return a.refuse() }),
		"unread files": {answer: func(a *peerAnswer, _ string) error {
			return a.filesOf(node, snapshot.MetricsFile)
		}},
		"unread rules": {answer: func(a *peerAnswer, _ string) error {
			return a.filesOf(node, snapshot.IPTablesFile)
		}},
		"an error": {answer: func(a *peerAnswer, _ string) error { return a.refuse() }},
		"the name of a file": {answer: func(a *peerAnswer, _ string) error {
			return a.file("../"+poison, []byte("x"), "")
		}},
		"a frame that is not JSON": {answer: func(a *peerAnswer, _ string) error {
			return a.frame('f', []byte(`{"name":`+poison))
		}},
		"a frame of no kind": {answer: func(a *peerAnswer, _ string) error { return a.frame('\x1b', []byte(poison)) }},
		"a refusal":          result(&wire.ProgramResult{Refused: poison}),
		"another's path":     result(&wire.ProgramResult{What: wire.Unchanged, By: poison}),
		"a path undone": after(func(a *peerAnswer, _ string) error {
			return a.object([]wire.Undone{{Services: []string{poison, poison}, By: poison, Mode: poison}})
		}),
	}
}

// runLive runs the plugin on a cluster, with a helper in this process.
func (o *outputs) runLive(t *testing.T, what, input, server string, helper launch.Serve, args ...string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	Main(t.Context(), append(args, "--server", server), streams, System{Serve: helper})
	o.look(t, what, input, out.String(), false)
	o.look(t, what+" (stderr)", input, errOut.String(), false)
}

// Every answer of a helper: its hello, frames' names, unread texts, progress, errors, results.
func TestPoisonedHelper(t *testing.T) {
	var o outputs
	server := apiServer(t, nil, nil)
	for name, p := range peers(t) {
		for _, command := range []string{
			"trace frontend -n shop", "mode", "dump -o " + filepath.Join(t.TempDir(), "dump.tar.gz"),
			"program frontend -n shop --yes", "cleanup --running",
		} {
			args := append(strings.Fields(command), "--local", "--timeout", "1s")
			o.runLive(t, args[0], name, server, p.serve, args...)
		}
	}
	o.came(t, "trace (stderr)", "mode (stderr)", "dump (stderr)", "program (stderr)", "cleanup", "cleanup (stderr)")
}

// Every refusal of the API server, and its objects by way of a cluster; with -v also what is logged.
func TestPoisonedAPIServer(t *testing.T) {
	var o outputs
	good := peers(t)["files"].serve
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"forbidden": func(w http.ResponseWriter, _ *http.Request) bool { status(t, w, 403, "Forbidden"); return true },
		"invalid":   func(w http.ResponseWriter, _ *http.Request) bool { status(t, w, 422, "Invalid"); return true },
		"text": func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, poison)
			return true
		},
		"damaged": func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"`+poison)
			return true
		},
		"a User that cannot": func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `User "%[1]s" cannot list resource "services%[1]s" in API group "" in the namespace "x%[1]s"`, poison)
			return true
		},
		"pods are refused": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				status(t, w, 403, "Forbidden")
			}
			return r.Method == http.MethodPost
		},
		"the pod's status": podThatNeverRuns(t),
	} {
		server := apiServer(t, nil, answer)
		for _, command := range []string{
			"trace frontend -n shop --node worker-1", "trace frontend -n shop --local", "resolve web -n shop",
			"verify -n shop --node worker-1", "cleanup", "dump --node worker-1 -o -", "mode --node worker-1 -o json",
		} {
			if name == "the pod's status" && !strings.HasPrefix(command, "trace") {
				continue
			}
			args := append(strings.Fields(command), "--timeout", "2s")
			o.runLive(t, args[0], name, server, good, args...)
		}
	}
	for _, fields := range [][]string{
		{".ObjectMeta.Name"},
		{".ObjectMeta.Namespace"},
		{".Spec.Ports.Name", ".Spec.NodeName", ".Status.Conditions.Message"},
		{".Data"},
	} {
		server := apiServer(t, fields, nil)
		for _, command := range []string{
			"resolve 10.96.21.191", "trace 10.96.21.191 --local", "dump --all-nodes -o - --dry-run client", "cleanup",
			"resolve nope -n shop -v 9", "trace nope -n shop", "program 10.96.21.191 --node worker-1 --dry-run=client",
		} {
			args := append(strings.Fields(command), "--timeout", "2s")
			what := args[0]
			if slices.Contains(args, "9") {
				what = "-v 9"
			}
			o.runLive(t, what, strings.Join(fields, " "), server, good, args...)
			resetVerbosity(t)
		}
	}
	o.came(t, "trace (stderr)", "resolve (stderr)", "resolve", "mode (stderr)", "dump", "dump (stderr)",
		"cleanup (stderr)", "verify (stderr)", "-v 9 (stderr)")
}

// resetVerbosity undoes -v, which is the process's.
func resetVerbosity(t *testing.T) {
	t.Helper()
	if err := New(genericiooptions.NewTestIOStreamsDiscard(), System{}).PersistentFlags().Set("v", "0"); err != nil {
		t.Fatal(err)
	}
}

// podThatNeverRuns takes helper pods, whose container cannot start.
func podThatNeverRuns(t *testing.T) func(w http.ResponseWriter, r *http.Request) bool {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/namespaces/kube-system/pods") {
			return false
		}
		var pod corev1.Pod
		if r.Method == http.MethodPost {
			if err := json.NewDecoder(r.Body).Decode(&pod); err != nil {
				pod = corev1.Pod{}
			}
		}
		pod.Name, pod.Namespace, pod.UID, pod.ResourceVersion = "helper", "kube-system", "u", "1"
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "helper", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 1, Reason: poison, Message: poison,
			}},
		}}, Reason: poison, Message: poison}
		if r.Method != http.MethodPost {
			pod.Status.Phase = corev1.PodFailed
		}
		data, err := json.Marshal(&pod)
		if err != nil {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", data)
			return true
		}
		_, _ = w.Write(data)
		return true
	}
}
