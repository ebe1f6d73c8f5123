// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Shell completion. kubectl runs an executable kubectl_complete-svcproxy (in completion/), which runs cobra's
// __complete. On an error nothing is offered and nothing is printed: the person is typing a command line.

// completionTimeout bounds what a person waits for after TAB, all in all.
const completionTimeout = 2 * time.Second

// noFiles tells the shell that no file name belongs here.
const noFiles = cobra.ShellCompDirectiveNoFileComp

// names is a request for names: the functions that answer it from a snapshot, and from a cluster.
type question[T any] struct {
	snapshot func(*snapshot.Snapshot) ([]T, error)
	cluster  func(context.Context, kubernetes.Interface) ([]T, error)
}

// ask answers the request from the snapshot of --snapshot, else from the cluster; nil if there is no answer in time.
// Not every source ends with the context (a credential plugin, a slow disk): then its goroutine is abandoned, and ends
// with this process.
func ask[T any](cmd *cobra.Command, e *environment, q question[T]) []T {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	dir := snapshotOf(cmd)
	answer := make(chan []T, 1)
	go func() {
		var out []T
		if dir != "" {
			if snap, err := snapshot.Open(dir); err == nil {
				out, _ = q.snapshot(snap)
			}
		} else if client, _, err := e.client(); err == nil {
			out, _ = q.cluster(ctx, client)
		}
		answer <- out
	}()
	select {
	case out := <-answer:
		return out
	case <-ctx.Done():
		return nil
	}
}

// snapshotOf returns --snapshot; "" where it is not given or the command has none.
func snapshotOf(cmd *cobra.Command) string {
	if f := cmd.Flags().Lookup("snapshot"); f != nil {
		return f.Value.String()
	}
	return ""
}

// fromCache lists what the API server has in its memory: this is cheap for it, and names do not change every second.
var fromCache = metav1.ListOptions{ResourceVersion: "0"}

// services asks for the Services of a namespace.
func services(namespace string) question[*corev1.Service] {
	return question[*corev1.Service]{
		snapshot: func(snap *snapshot.Snapshot) ([]*corev1.Service, error) {
			c, err := snap.Cluster()
			if err != nil {
				return nil, err
			}
			return slices.DeleteFunc(c.Services, func(svc *corev1.Service) bool { return svc.Namespace != namespace }), nil
		},
		cluster: func(ctx context.Context, client kubernetes.Interface) ([]*corev1.Service, error) {
			l, err := client.CoreV1().Services(namespace).List(ctx, fromCache)
			if err != nil {
				return nil, err
			}
			return pointers(l.Items), nil
		},
	}
}

// pods asks for the pods of a namespace.
func pods(namespace string) question[*corev1.Pod] {
	return question[*corev1.Pod]{
		snapshot: func(snap *snapshot.Snapshot) ([]*corev1.Pod, error) {
			c, err := snap.Cluster()
			if err != nil {
				return nil, err
			}
			return slices.DeleteFunc(c.Pods, func(p *corev1.Pod) bool { return p.Namespace != namespace }), nil
		},
		cluster: func(ctx context.Context, client kubernetes.Interface) ([]*corev1.Pod, error) {
			l, err := client.CoreV1().Pods(namespace).List(ctx, fromCache)
			if err != nil {
				return nil, err
			}
			return pointers(l.Items), nil
		},
	}
}

// nodes asks for the nodes that can be read: those that a snapshot has files of.
var nodes = question[string]{
	snapshot: func(snap *snapshot.Snapshot) ([]string, error) { return snap.NodeNames(), nil },
	cluster: func(ctx context.Context, client kubernetes.Interface) ([]string, error) {
		l, err := client.CoreV1().Nodes().List(ctx, fromCache)
		if err != nil {
			return nil, err
		}
		return namesOf(pointers(l.Items)), nil
	},
}

// namespaces asks for the namespaces: of a snapshot those that Services are in.
var namespaces = question[string]{
	snapshot: func(snap *snapshot.Snapshot) ([]string, error) {
		c, err := snap.Cluster()
		if err != nil {
			return nil, err
		}
		var out []string
		for _, svc := range c.Services {
			out = append(out, svc.Namespace)
		}
		return out, nil
	},
	cluster: func(ctx context.Context, client kubernetes.Interface) ([]string, error) {
		l, err := client.CoreV1().Namespaces().List(ctx, fromCache)
		if err != nil {
			return nil, err
		}
		return namesOf(pointers(l.Items)), nil
	},
}

// completeServices completes up to limit Services (0: any number), and the ports of the one whose name is followed by a
// colon.
func (e *environment) completeServices(limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ns, err := e.namespace()
		if err != nil || limit > 0 && len(args) >= limit {
			return nil, noFiles
		}
		// "svc/web:http" is completed from its end: what stands before stays as it was typed.
		before, rest := word[:strings.LastIndexByte(word, '/')+1], word[strings.LastIndexByte(word, '/')+1:]
		kind := cluster.KindService
		if first, other, ok := strings.Cut(before, "/"); ok {
			if known, isKind := cluster.KindOf(first); isKind {
				kind = known
			} else if other != "" {
				return nil, noFiles
			} else {
				ns = first
			}
			if namespace, deeper, ok := strings.Cut(other, "/"); ok && deeper == "" {
				ns = namespace
			}
		}
		if kind != cluster.KindService {
			return offer(e.completeWorkloads(cmd, kind, ns, before), word), noFiles
		}
		svcName, _, ports := strings.Cut(rest, ":")
		var out []cobra.Completion
		for _, svc := range ask(cmd, e, services(ns)) {
			switch {
			case slices.Contains(args, before+svc.Name):
			case !ports:
				out = append(out, before+svc.Name)
			case svc.Name == svcName:
				out = portNames(before+svcName+":", svc)
			}
		}
		return offer(out, word), noFiles
	}
}

// completeWorkloads completes the name of what leads to a Service in its place: a pod, or a workload that pods of the
// namespace belong to; and a node.
func (e *environment) completeWorkloads(
	cmd *cobra.Command, kind cluster.Kind, namespace, before string,
) (out []cobra.Completion) {
	var names []string
	if kind == cluster.KindNode {
		names = ask(cmd, e, nodes)
	} else {
		names = cluster.WorkloadsOf(ask(cmd, e, pods(namespace)), kind)
	}
	for _, n := range names {
		out = append(out, before+n)
	}
	return out
}

// portNames lists a Service's ports by name and by number, as trace takes both.
func portNames(before string, svc *corev1.Service) []cobra.Completion {
	var out []cobra.Completion
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		out = append(out, before+strconv.Itoa(int(p.Port)))
		if p.Name != "" {
			out = append(out, before+p.Name)
		}
	}
	return out
}

// completeNodes completes a node's name; in a list with commas the last one.
func (e *environment) completeNodes(
	cmd *cobra.Command, args []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := word[:strings.LastIndexByte(word, ',')+1]
	given := append(strings.Split(before, ","), args...)
	var out []cobra.Completion
	for _, n := range ask(cmd, e, nodes) {
		if !slices.Contains(given, n) {
			out = append(out, before+n)
		}
	}
	return offer(out, word), noFiles
}

// completeFrom completes where a packet comes from; behind pod/ the pods that can send one, on the nodes that --node
// names.
func (e *environment) completeFrom(
	cmd *cobra.Command, _ []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if strings.HasPrefix(word, "node/") {
		return offer(e.completeWorkloads(cmd, cluster.KindNode, "", "node/"), word), noFiles
	}
	rest, ok := strings.CutPrefix(word, "pod/")
	if !ok {
		// pod/ and node/ go on.
		return offer([]cobra.Completion{"pod", "pod/", "node", "node/", "external"}, word),
			noFiles | cobra.ShellCompDirectiveNoSpace
	}
	ns, err := e.namespace()
	if err != nil {
		return nil, noFiles
	}
	before := "pod/"
	if other, _, ok := strings.Cut(rest, "/"); ok {
		ns, before = other, "pod/"+other+"/"
	}
	on, err := cmd.Flags().GetStringSlice("node")
	if err != nil {
		on = nil // the command has no such flag
	}
	var out []cobra.Completion
	for _, p := range ask(cmd, e, pods(ns)) {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !ended && p.Spec.NodeName != "" && (len(on) == 0 || slices.Contains(on, p.Spec.NodeName)) {
			out = append(out, before+p.Name)
		}
	}
	return offer(out, word), noFiles
}

// completeNamespaces completes a namespace.
func (e *environment) completeNamespaces(
	cmd *cobra.Command, _ []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return offer(ask(cmd, e, namespaces), word), noFiles
}

type kubeconfig = clientcmdapi.Config

// completeKubeconfig completes the name of something that the kubeconfig holds.
func completeKubeconfig[T any](e *environment, entries func(*kubeconfig) map[string]T) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		config, err := e.kube.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, noFiles
		}
		return offer(slices.Collect(maps.Keys(entries(&config))), word), noFiles
	}
}

// addCompletions adds those of the kubectl flags to the finished command tree. Words without a completion of their own
// are not file names, but for those of the flags at the end.
func (e *environment) addCompletions(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(noFiles)
	for flag, complete := range map[string]cobra.CompletionFunc{
		"namespace": e.completeNamespaces,
		"context":   completeKubeconfig(e, func(c *kubeconfig) map[string]*clientcmdapi.Context { return c.Contexts }),
		"cluster":   completeKubeconfig(e, func(c *kubeconfig) map[string]*clientcmdapi.Cluster { return c.Clusters }),
		"user":      completeKubeconfig(e, func(c *kubeconfig) map[string]*clientcmdapi.AuthInfo { return c.AuthInfos }),
	} {
		_ = root.RegisterFlagCompletionFunc(flag, complete)
	}
	for _, flag := range []string{"kubeconfig", "certificate-authority", "client-certificate", "client-key", "cache-dir"} {
		_ = root.RegisterFlagCompletionFunc(flag, completeFiles)
	}
}

// completeFirst completes the one argument of a command, of names that no cluster is asked for.
func completeFirst(names func(*cobra.Command) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, noFiles
		}
		return offer(names(cmd), word), noFiles
	}
}

// completeFiles leaves a word to the shell, which knows files best.
func completeFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// namesOf returns the names of objects.
func namesOf[T metav1.Object](objects []T) []string {
	out := make([]string, len(objects))
	for i, o := range objects {
		out[i] = o.GetName()
	}
	return out
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// offer keeps what the word begins, in order. A name that a shell does not take as one plain word is not offered: some
// shells insert it into the command line as it is, and in cobra's answer a tab or a newline begins something else. No
// object that the API server accepts has such a name.
func offer(names []cobra.Completion, word string) []cobra.Completion {
	names = slices.DeleteFunc(names, func(n string) bool {
		return !strings.HasPrefix(n, word) || report.ShellWord(n) != n || strings.HasPrefix(n, "-")
	})
	slices.Sort(names)
	return slices.Compact(names)
}
