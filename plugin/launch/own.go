// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// openPod makes a pod on the node and connects to the helper in it. Once in some thousand times the streams of a
// container that has just started carry nothing: after a quarter of --timeout another pod is made, which gets all of
// it.
func (l *Launcher) openPod(ctx context.Context, node string) (*Helper, error) {
	const share = 4
	h, silent, err := l.openNewPod(ctx, node, max(l.o.Timeout/share, min(l.o.Timeout, leastHello)))
	if silent && ctx.Err() == nil {
		l.o.Say(node, "the helper is silent: another pod")
		h, _, err = l.openNewPod(ctx, node, l.o.Timeout)
	}
	return h, err
}

// leastHello is for how long a helper may say nothing before it is given up, where --timeout allows it.
const leastHello = 2 * time.Second

// openNewPod makes a pod, whose helper has to say hello in time. silent: it did not, and the pod is gone.
func (l *Launcher) openNewPod(
	ctx context.Context, node string, hello time.Duration,
) (h *Helper, silent bool, err error) {
	l.o.Say(node, "scheduling")
	pod, err := l.create(ctx, node)
	if err != nil {
		return nil, false, err
	}
	m := &connecting{l: l, node: node, pod: pod, hello: hello}
	c, err := m.run(ctx)
	if err != nil {
		if removeErr := l.remove(context.WithoutCancel(ctx), m.pod, m.untouched()); removeErr != nil {
			return nil, false, fmt.Errorf("%w; and %w", err, removeErr)
		}
		_, silent = errors.AsType[*silentError](err)
		return nil, silent, err
	}
	return l.newHelper(node, pod, c, func(ctx context.Context) error { return l.remove(ctx, pod, false) }), false, nil
}

// createTimeout bounds the making of a pod: admission webhooks may take 30 s (their longest timeoutSeconds).
const createTimeout = 35 * time.Second

// create makes the pod. An interrupt does not end the request, as nobody would know then whether there is a pod and
// what its name is.
func (l *Launcher) create(ctx context.Context, node string) (*corev1.Pod, error) {
	type result struct {
		pod *corev1.Pod
		err error
	}
	done := make(chan result, 1)
	l.side.Go(func() {
		requestCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
		defer cancel()
		pod, err := l.pods.Create(requestCtx, Pod(l.o, node), metav1.CreateOptions{})
		if err == nil && ctx.Err() != nil {
			err = errors.Join(ctx.Err(), l.remove(requestCtx, pod, true))
		}
		done <- result{pod, err}
	})
	select {
	case r := <-done:
		if r.err != nil && ctx.Err() == nil {
			return nil, l.refused(ctx, r.err)
		}
		return r.pod, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connecting waits for a pod's helper.
type connecting struct {
	l    *Launcher
	node string
	pod  *corev1.Pod // as it was last seen
	now  state

	hello time.Duration // how long the helper may be silent at first

	tries int   // failed attempts to connect since the container runs
	last  error // of the last attempt
}

// maxTries is how often an attempt to connect may fail while the container is said to run.
const maxTries = 3

// run waits until the helper says hello. The kubelet tells of a running container up to a second late (it checks its
// containers once a second, pkg/kubelet/pleg/generic.go), so attaching is tried before that: for a container that does
// not run yet the kubelet just says no.
func (m *connecting) run(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.l.o.Timeout, errTimeout)
	defer cancel()
	followCtx, stop := context.WithCancel(ctx)
	defer stop()
	updates := m.l.follow(followCtx, m.pod)
	attempts := make(chan attempt, 1)
	attemptCtx, stopAttempt := context.WithCancel(ctx)
	defer stopAttempt()
	pause := firstPause
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	trying := false
	try := func() {
		timer.Stop()
		if trying {
			return
		}
		trying = true
		pod, running := m.pod, m.now.running
		go func() { attempts <- m.attach(attemptCtx, pod, running) }()
	}
	// An attempt that is under way is waited for: its connection must not be made when nobody waits for it any more.
	defer func() {
		if trying {
			stopAttempt()
			if a := <-attempts; a.conn != nil {
				a.conn.close()
			}
		}
	}()
	for {
		select {
		case u := <-updates:
			before := m.now
			if err := m.update(u); err != nil {
				return nil, err
			}
			switch {
			case m.now.running && !before.running:
				try()
			case m.now.started && !before.started:
				timer.Reset(pause)
			}
		case <-timer.C:
			try()
		case a := <-attempts:
			trying = false
			if a.err == nil {
				return a.conn, nil
			}
			if err := m.failed(a); err != nil {
				return nil, err
			}
			timer.Reset(pause)
			pause = min(pause*3/2, time.Second)
		case <-ctx.Done():
			return nil, m.gaveUp(ctx)
		}
	}
}

// firstPause is how long after the kubelet has taken the pod on the first attempt is made, and the first pause between
// two.
const firstPause = 150 * time.Millisecond

var errTimeout = errors.New("timed out")

// update takes note of the pod as it is now.
func (m *connecting) update(u change) error {
	switch {
	case u.err != nil:
		return fmt.Errorf("cannot follow the helper pod %s/%s: %w", m.pod.Namespace, m.pod.Name, u.err)
	case u.gone:
		return fmt.Errorf("the helper on node %s did not start: someone deleted its pod %s/%s",
			m.node, m.pod.Namespace, m.pod.Name)
	}
	m.pod = u.pod
	before := m.now
	m.now = podState(u.pod)
	if m.now.end != "" {
		return m.failure(m.now.end)
	}
	if m.now.what != before.what {
		m.l.o.Say(m.node, m.now.what)
	}
	return nil
}

func (m *connecting) failure(what string) error {
	if m.last != nil && m.tries > 0 {
		what += "; connecting to it failed: " + m.last.Error()
	}
	return fmt.Errorf("the helper on node %s (image %s) does not answer: %s", m.node, m.l.o.Image, what)
}

type attempt struct {
	conn    *conn
	running bool // the container was known to run as it began
	err     error
}

// attach makes an attempt.
func (m *connecting) attach(ctx context.Context, pod *corev1.Pod, running bool) attempt {
	c, err := connect(ctx, func(ctx context.Context, s streams) error {
		return m.l.stream(ctx, pod, nil, s)
	}, m.l.o.Build, m.hello, m.l.o.Timeout)
	return attempt{conn: c, running: running, err: err}
}

// failed says whether an attempt that failed was the last.
func (m *connecting) failed(a attempt) error {
	m.last = m.l.streamRefused(a.err)
	klog.V(4).InfoS("Cannot attach yet", "pod", klog.KObj(m.pod), "err", a.err)
	_, protocol := errors.AsType[*peer.Error](a.err)
	_, refused := errors.AsType[*forbiddenError](m.last)
	_, silent := errors.AsType[*silentError](a.err)
	if protocol || refused || silent {
		return m.last
	}
	if !a.running {
		return nil
	}
	m.tries++
	if m.tries < maxTries {
		return nil
	}
	return m.l.why(m.pod, m.failure("its container runs"))
}

// gaveUp says what was waited for in vain.
func (m *connecting) gaveUp(ctx context.Context) error {
	if !errors.Is(context.Cause(ctx), errTimeout) {
		return ctx.Err()
	}
	// The run's own context may still be good; this one is not.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	what := m.now.what
	if what == "" {
		what = "scheduling"
	}
	text := fmt.Sprintf("not within %v (--timeout); its last state: %s", m.l.o.Timeout, what)
	if err := m.l.checkNode(ctx, m.node); err != nil {
		text += "; " + err.Error()
	} else if !m.now.started {
		text += "; the node's kubelet has not started its pod"
	}
	if warning := m.l.lastWarning(ctx, m.pod); warning != "" {
		text += "; last warning: " + warning
	}
	if m.last != nil && m.now.running {
		text += "; connecting failed: " + m.last.Error()
	}
	return m.failure(text)
}

// untouched says whether no kubelet has taken the pod on, so that none will confirm its deletion either.
func (m *connecting) untouched() bool { return !m.now.started && m.now.end == "" }

// lastWarning is what the events of a pod say last, for those who may read them.
func (l *Launcher) lastWarning(ctx context.Context, pod *corev1.Pod) string {
	list, err := l.o.Client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.SelectorFromSet(fields.Set{
			"involvedObject.uid": string(pod.UID),
			"type":               corev1.EventTypeWarning,
		}).String(),
	})
	if err != nil {
		klog.V(2).InfoS("Cannot read the events of the helper pod", "pod", klog.KObj(pod), "err", err)
		return ""
	}
	var last *corev1.Event
	for i := range list.Items {
		e := &list.Items[i]
		if e.Type != corev1.EventTypeWarning || e.InvolvedObject.UID != pod.UID {
			continue
		}
		if last == nil || when(e).After(when(last)) {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	return safetext.Line(last.Reason+": "+last.Message, 700)
}

// when is the time of an event, by whichever of its fields its source fills in.
func when(e *corev1.Event) time.Time {
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time} {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// accountTimeout is how long to wait for the kubelet's account of a helper's end; it tells of it within a second or
// two.
const accountTimeout = 3 * time.Second

// why adds to the error of a stream what became of the helper.
func (l *Launcher) why(pod *corev1.Pod, err error) error {
	if _, remote := errors.AsType[*wire.RemoteError](err); remote {
		return err
	}
	ctx, cancel := context.WithTimeout(quiet(context.Background()), l.account)
	defer cancel()
	for {
		now, getErr := l.pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if getErr == nil && now.UID == pod.UID {
			// A helper ends in order when its stream does; that explains nothing.
			if end := podState(now).end; end != "" && !endedInOrder(now) {
				return fmt.Errorf("%w; the cluster reports about the helper: %s", err, end)
			}
		} else if getErr != nil && !transient(getErr) {
			return fmt.Errorf("%w; its pod no longer exists", err)
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
