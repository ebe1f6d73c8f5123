// SPDX-License-Identifier: Apache-2.0

// Package launch starts a node's helper and connects to it: in an own pod on the node, in an existing pod of a
// DaemonSet, or in this process on the node itself. It removes everything that it creates in the cluster.
//
// A run has one Launcher. Open returns the Helper of a node; Helper.Close removes what Open created, and Launcher.Close
// ends the run. If neither is called, as the process was killed, the helper exits by itself when its standard input
// ends, and of its pod an object stays, which the next run removes.
package launch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// The defaults of Options.
const (
	DefaultTimeout  = 60 * time.Second
	DefaultLifetime = 5 * time.Minute
)

// Options are how helpers are launched.
type Options struct {
	Config *rest.Config
	Client kubernetes.Interface

	// Run is this run's id, a label of every pod; NewRun makes one.
	Run       string
	Namespace string // of the pods
	// Build is the plugin's version, which is sent to the helper.
	Build      string
	Image      string // "": DefaultImage(Build)
	PullPolicy corev1.PullPolicy
	PullSecret string
	Profile    Profile // "": ProfilePrivileged

	// Timeout bounds the time from a pod's creation to its helper's hello, and each silence of the helper
	// afterwards.
	Timeout time.Duration
	// Lifetime is how long a helper stays when nobody ends it.
	Lifetime time.Duration
	// Hold is for helpers that program paths: they may stay alone for so long besides, and are started again when they
	// are killed, to take away what they have programmed.
	Hold time.Duration
	// Keep leaves the pods.
	Keep bool
	// OwnPod makes an own pod also where there is a DaemonSet's.
	OwnPod bool

	// Say reports the progress of a node's helper, for a line that the next one replaces; Note reports a message that has
	// to stay visible. Both may be nil, and may be called from several goroutines at once.
	Say, Note func(node, what string)
}

// Launcher launches the helpers of a run. It may be used from several goroutines at once.
type Launcher struct {
	o      Options
	pods   typedcorev1.PodInterface
	stream streamer
	// account is how long to wait for the cluster's account of a helper's end.
	account time.Duration

	sweep sync.Once
	side  sync.WaitGroup  // goroutines that belong to no helper
	life  context.Context //nolint:containedctx // that of every Open: it ends with Close
	end   context.CancelFunc

	mu      sync.Mutex
	closed  bool
	opening sync.WaitGroup
	helpers map[*Helper]bool
	builds  map[string]bool // of helpers, but for the own one
}

// NewRun makes the id of a run. Two runs at once must not share one.
func NewRun() string {
	return strings.ToLower(rand.Text()[:12])
}

// New makes a Launcher. It asks the cluster nothing yet.
func New(o Options) (*Launcher, error) {
	o.fill()
	if err := o.validate(); err != nil {
		return nil, err
	}
	l := &Launcher{o: o, account: accountTimeout, helpers: map[*Helper]bool{}, pods: o.Client.CoreV1().Pods(o.Namespace)}
	l.life, l.end = context.WithCancel(context.Background())
	l.stream = remote{config: o.Config, client: o.Client.CoreV1().RESTClient()}.stream
	return l, nil
}

// fill sets the defaults.
func (o *Options) fill() {
	if o.Image == "" {
		o.Image = DefaultImage(o.Build)
	}
	if o.Profile == "" {
		o.Profile = ProfilePrivileged
	}
	if o.PullPolicy == "" {
		o.PullPolicy = corev1.PullIfNotPresent
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Lifetime == 0 {
		o.Lifetime = DefaultLifetime
	}
	if o.Say == nil {
		o.Say = func(string, string) {}
	}
	if o.Note == nil {
		o.Note = func(string, string) {}
	}
}

func (o *Options) validate() error {
	if errs := validation.IsValidLabelValue(o.Run); len(errs) > 0 || o.Run == "" {
		return fmt.Errorf("%q cannot be the id of a run: it has to be the value of a label", o.Run)
	}
	if errs := validation.IsDNS1123Label(o.Namespace); len(errs) > 0 {
		return fmt.Errorf("%q is not a valid name of a namespace for the helper: %s", o.Namespace, strings.Join(errs, "; "))
	}
	if _, ok := profiles[o.Profile]; !ok {
		return fmt.Errorf("%q is not a security profile: use %s", o.Profile, strings.Join(Profiles(), " or "))
	}
	switch o.PullPolicy {
	case corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		return fmt.Errorf("%q is not an image pull policy: use Always, IfNotPresent or Never", o.PullPolicy)
	}
	if strings.TrimSpace(o.Image) != o.Image {
		return fmt.Errorf("%q is not a valid name of an image", o.Image)
	}
	if o.PullSecret != "" {
		if errs := validation.IsDNS1123Subdomain(o.PullSecret); len(errs) > 0 {
			return fmt.Errorf("%q is not a valid name of a pull secret: %s", o.PullSecret, strings.Join(errs, "; "))
		}
	}
	if o.Timeout < time.Second || o.Lifetime < time.Second {
		return fmt.Errorf("a timeout of %v is too short: give at least 1s", min(o.Timeout, o.Lifetime))
	}
	return nil
}

// Open launches a node's helper, or finds the one that is there, and connects to it. On an error nothing is left
// behind.
func (l *Launcher) Open(ctx context.Context, node string) (*Helper, error) {
	if errs := validation.IsDNS1123Subdomain(node); len(errs) > 0 {
		return nil, fmt.Errorf("%q is not a valid name of a node: %s", node, strings.Join(errs, "; "))
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, context.Canceled
	}
	l.opening.Add(1)
	l.mu.Unlock()
	defer l.opening.Done()
	ctx, cancel := context.WithCancel(quiet(ctx))
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()
	s, err := l.open(ctx, node)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.helpers[s] = true
	return s, nil
}

func (l *Launcher) open(ctx context.Context, node string) (*Helper, error) {
	l.sweepOnce()
	// What comes before the pod is asked for side by side, as each question costs a round trip.
	l.o.Say(node, "checking the node")
	var daemon *corev1.Pod
	var nodeErr error
	var ask sync.WaitGroup
	ask.Go(func() { nodeErr = l.checkNode(ctx, node) })
	ask.Go(func() { daemon = l.findDaemon(ctx, node) })
	ask.Wait()
	if nodeErr != nil {
		return nil, nodeErr
	}
	var daemonErr error
	if daemon != nil {
		s, err := l.openDaemon(ctx, node, daemon)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		daemonErr = fmt.Errorf("the DaemonSet's pod %s/%s cannot be used: %w", daemon.Namespace, daemon.Name, err)
		l.o.Note(node, daemonErr.Error()+"; creating a pod of its own")
	}
	s, err := l.openPod(ctx, node)
	if err != nil && daemonErr != nil {
		return nil, fmt.Errorf("%w; and a pod in its place: %w", daemonErr, err)
	}
	return s, err
}

// Check asks the API server whether it would take a helper's pod, and makes none. Open does not call it: the real
// creation passes the same admission and is refused with the same message, and asking twice would cost each run a round
// trip. It is for those who want to know before they begin with many nodes.
func (l *Launcher) Check(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if _, err := l.pods.Create(ctx, Pod(l.o, node), options); err != nil {
		return l.refused(ctx, err)
	}
	return nil
}

// closeTimeout bounds how long the end of a run waits for what goes on beside it. An API server that does not answer
// must not hold up a person who has interrupted the run; the next run removes what is left.
const closeTimeout = 2 * time.Second

// Close ends the run: nodes that are being opened are given up, helpers that are still open are closed.
func (l *Launcher) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end()
	l.opening.Wait()
	var helpers sync.WaitGroup
	for _, s := range l.openHelpers() {
		helpers.Go(func() {
			if err := s.Close(); err != nil {
				l.o.Note(s.node, err.Error())
			}
		})
	}
	helpers.Wait()
	idle := make(chan struct{})
	go func() {
		l.side.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(closeTimeout):
	}
}

func (l *Launcher) openHelpers() []*Helper {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.helpers))
}

// Local serves this machine's own node within this process: serve is nodehelper.Serve with its options.
func Local(ctx context.Context, node string, o Options, serve Serve) (*Helper, error) {
	if serve == nil {
		return nil, errors.New("this program cannot inspect the machine it runs on")
	}
	o.fill()
	c, err := connect(ctx, serve.stream, o.Build, o.Timeout, o.Timeout)
	if err != nil {
		return nil, err
	}
	return &Helper{node: node, conn: c, say: o.Say, remove: func(context.Context) error { return nil }}, nil
}
