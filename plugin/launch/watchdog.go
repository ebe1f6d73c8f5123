// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The watchdog is a process of its own that outlives a plugin which is killed. Over its standard input it is told
// first, as one line of JSON, whose pods to remove and how to reach the API server (on a command line everybody could
// read that), and at the end, with another line, that nothing is left to do, or that a helper holds a programmed path
// until some time: then the process stays, and removes the helper's pod once that has ended. If its input ends without
// that line, it removes the run's pods.

// order is the first line.
type order struct {
	Namespace string `json:"namespace"`
	Run       string `json:"run"`
	API       access `json:"api"`
}

// allDone is the second line; where helpers have been left alone, heldUntil is, with the time, as of RFC 3339, at which
// the last of their paths ends.
const (
	allDone   = "done\n"
	heldUntil = "held until "
)

// watchdog is the plugin's end.
type watchdog struct {
	once sync.Once
	err  error

	mu    sync.Mutex
	stdin io.WriteCloser // nil: there is no process
	left  bool           // something may be left to remove
	held  time.Time      // a helper holds a path until then; zero: none does
}

// start starts the process, once.
func (g *watchdog) start(o *Options) error {
	g.once.Do(func() {
		if len(o.Watchdog) == 0 || o.Keep {
			return
		}
		g.err = g.run(o)
	})
	return g.err
}

func (g *watchdog) run(o *Options) error {
	api, err := accessOf(o.Config)
	if err != nil {
		return err
	}
	line, err := json.Marshal(order{Namespace: o.Namespace, Run: o.Run, API: api})
	if err != nil {
		return err
	}
	// It outlives the run's context on purpose, and takes no part in the plugin's terminal, signals or output.
	cmd := exec.Command(o.Watchdog[0], o.Watchdog[1:]...) //nolint:gosec,noctx // this very program, see Options
	detach(cmd)
	child, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdin = child
	err = cmd.Start()
	child.Close()
	if err != nil {
		stdin.Close()
		return err
	}
	// A kubeconfig with long certificates may not fit into the pipe at once; the process reads as soon as it runs.
	if _, err := stdin.Write(append(line, '\n')); err != nil {
		stdin.Close()
		if waitErr := cmd.Wait(); waitErr != nil {
			err = waitErr
		}
		return err
	}
	go func() { _ = cmd.Wait() }() // takes note of its end; there is nothing to do about it
	g.mu.Lock()
	g.stdin = stdin
	g.mu.Unlock()
	return nil
}

// keepOn leaves it to the process to remove what this one could not.
func (g *watchdog) keepOn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = true
}

// hold leaves it to the process to remove the pod of a helper that holds a path, after that has ended.
func (g *watchdog) hold(until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until.After(g.held) {
		g.held = until
	}
}

// stop ends the process, if nothing is left to do. That it has ended already is no news to anybody: the pods are gone.
func (g *watchdog) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stdin == nil {
		return
	}
	switch {
	case !g.held.IsZero():
		_, _ = io.WriteString(g.stdin, heldUntil+g.held.Format(time.RFC3339)+"\n")
	case !g.left:
		_, _ = io.WriteString(g.stdin, allDone)
	}
	g.stdin.Close()
	g.stdin = nil
}

// watchdogTime bounds the removal, and watchdogPause is between two lists: a pod whose creation was under way as the
// plugin was killed appears late.
const (
	watchdogTime  = time.Minute
	watchdogPause = 3 * time.Second
	watchdogLists = 4 // as often nothing has to be found, one after the other
)

// Watchdog is what the process of Options.Watchdog does. It returns when the plugin ends in order, or when the plugin's
// pods are gone.
func Watchdog(ctx context.Context, stdin io.Reader) error {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the watchdog got no parameters: %w", err)
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("the watchdog cannot read its parameters: %w", err)
	}
	if o.Run == "" || o.Namespace == "" {
		return errors.New("the watchdog's parameters name no run, or no namespace")
	}
	last, lineErr := in.ReadString('\n')
	if lineErr == nil && last == allDone {
		return nil
	}
	until, held := strings.CutPrefix(strings.TrimSuffix(last, "\n"), heldUntil)
	at, timeErr := time.Parse(time.RFC3339, until)
	config, err := o.API.config()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if lineErr == nil && held && timeErr == nil {
		return removeHeld(ctx, client, o.Namespace, o.Run, at, watchdogPause)
	}
	return removeRun(ctx, client, o.Namespace, o.Run, watchdogPause)
}

// heldTime is how long after the time of its path a helper's pod is waited for to end: it undoes the path before. One
// that has not ended by then is left to a cleanup.
const heldTime = 5 * time.Minute

// removeHeld waits until the time of a run's paths is over, and deletes the run's pods as they end, until none is left.
// One that runs holds its path, and is not deleted.
func removeHeld(
	ctx context.Context, client kubernetes.Interface, namespace, run string, at time.Time, pause time.Duration,
) error {
	// By the clock of the day: this machine may sleep meanwhile.
	for time.Now().Round(0).Before(at) {
		select {
		case <-time.After(min(time.Until(at), time.Minute)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, heldTime)
	defer cancel()
	pods := client.CoreV1().Pods(namespace)
	for {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector(run)})
		if err == nil {
			left := 0
			for i := range list.Items {
				p := &list.Items[i]
				if p.DeletionTimestamp != nil {
					continue
				}
				if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
					err = errors.Join(err, deletePod(ctx, pods, p, false))
				} else {
					left++
				}
			}
			if left == 0 && err == nil {
				return nil
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// removeRun deletes the pods of a run until none appears any more.
func removeRun(ctx context.Context, client kubernetes.Interface, namespace, run string, pause time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, watchdogTime)
	defer cancel()
	pods := client.CoreV1().Pods(namespace)
	var err error
	for clean := 0; clean < watchdogLists; {
		found := false
		list, listErr := pods.List(ctx, metav1.ListOptions{LabelSelector: selector(run)})
		if err = listErr; err == nil {
			for i := range list.Items {
				if p := &list.Items[i]; p.DeletionTimestamp == nil {
					found = true
					err = errors.Join(err, deletePod(ctx, pods, p, false))
				}
			}
		}
		clean++
		if found || err != nil {
			clean = 0
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
	return nil
}

// access is the part of a rest.Config that reaches an API server and can be written down.
type access struct {
	Host            string                           `json:"host"`
	APIPath         string                           `json:"apiPath,omitempty"`
	Username        string                           `json:"username,omitempty"`
	Password        string                           `json:"password,omitempty"`
	BearerToken     string                           `json:"bearerToken,omitempty"`
	BearerTokenFile string                           `json:"bearerTokenFile,omitempty"`
	Impersonate     rest.ImpersonationConfig         `json:"impersonate"`
	AuthProvider    *clientcmdapi.AuthProviderConfig `json:"authProvider,omitempty"`
	Exec            *clientcmdapi.ExecConfig         `json:"exec,omitempty"`
	ExecCluster     json.RawMessage                  `json:"execCluster,omitempty"`
	ExecPolicy      clientcmdapi.PluginPolicy        `json:"execPolicy"`
	TLS             rest.TLSClientConfig             `json:"tls"`
	Proxy           string                           `json:"proxy,omitempty"`
}

// accessOf writes down how to reach the API server.
func accessOf(c *rest.Config) (access, error) {
	if c == nil || c.Transport != nil || c.WrapTransport != nil || c.Dial != nil {
		return access{}, errors.New("this connection to the API server cannot be handed over to another process")
	}
	a := access{
		Host: c.Host, APIPath: c.APIPath, Username: c.Username, Password: c.Password,
		BearerToken: c.BearerToken, BearerTokenFile: c.BearerTokenFile,
		Impersonate: c.Impersonate, AuthProvider: c.AuthProvider, TLS: c.TLSClientConfig,
	}
	if e := c.ExecProvider; e != nil {
		a.Exec, a.ExecPolicy = e, e.PluginPolicy
		if e.Config != nil {
			data, err := json.Marshal(e.Config)
			if err != nil {
				return access{}, err
			}
			a.ExecCluster = data
		}
	}
	if c.Proxy != nil {
		to, _, err := rest.DefaultServerURL(c.Host, c.APIPath, metav1.SchemeGroupVersion, !c.Insecure)
		if err != nil {
			return access{}, err
		}
		proxy, err := c.Proxy(&http.Request{URL: to})
		if err != nil {
			return access{}, err
		}
		if proxy != nil {
			a.Proxy = proxy.String()
		}
	}
	return a, nil
}

// config makes a rest.Config of what was written down.
func (a *access) config() (*rest.Config, error) {
	c := &rest.Config{
		Host: a.Host, APIPath: a.APIPath, Username: a.Username, Password: a.Password,
		BearerToken: a.BearerToken, BearerTokenFile: a.BearerTokenFile,
		Impersonate: a.Impersonate, AuthProvider: a.AuthProvider, TLSClientConfig: a.TLS,
		ExecProvider: a.Exec, Timeout: removeTimeout,
	}
	if c.ExecProvider != nil {
		// Its input is the pipe from the plugin, and there is no terminal to ask at.
		c.ExecProvider.StdinUnavailable = true
		c.ExecProvider.StdinUnavailableMessage = "there is no terminal to ask at"
		c.ExecProvider.PluginPolicy = a.ExecPolicy
		if a.ExecCluster != nil {
			c.ExecProvider.Config = &runtime.Unknown{Raw: a.ExecCluster, ContentType: runtime.ContentTypeJSON}
		}
	}
	if a.Proxy != "" {
		proxy, err := url.Parse(a.Proxy)
		if err != nil {
			return nil, err
		}
		c.Proxy = http.ProxyURL(proxy)
	}
	return c, nil
}
