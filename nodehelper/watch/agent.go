// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Options are what an agent watches, and how.
type Options struct {
	// Node is the name of the Node object of the node.
	Node string
	// Build is the version of the program.
	Build string
	// Client reaches the API server; Dialer, which may be nil, is what it connects with.
	Client kubernetes.Interface
	Dialer *Dialer
	// Reports publishes what is found in the API; nil: it is in the metrics alone.
	Reports Reports
	// Read reads the node's files: see [NodeReader].
	Read func(ctx context.Context) (*snapshot.Node, error)
	// Look looks at the node: see [NodeLooker]. nil: nobody looks.
	Look func() Moment
	// Tracked returns the counters of connection tracking since the node's start; nil where there are none. It may be nil
	// itself.
	Tracked func() *snapshot.Tracked
	// Share is how much of one processor the agent may take on average, over a minute; three times that where kube-proxy's
	// rules are those of iptables, or of IPVS.
	Share float64
	// Full is the time from one pass to the next where nothing changes; a tenth of it more or less, by chance.
	Full time.Duration
	// Poll is the same where rules are on the node whose changes the kernel does not announce.
	Poll time.Duration
	// Log writes a line for people; nil: nobody reads it.
	Log func(line string)
}

// The defaults of Options.
const (
	// DefaultShare leaves room for what may be saved up and used in advance, and for a pass over all paths that exceeds
	// both: on a node of 5,000 Services less than 2 % in ten minutes (make bench-agent).
	DefaultShare = 0.014
	DefaultFull  = 10 * time.Minute
	DefaultPoll  = 10 * time.Second
)

// What begins a pass, as the metrics name it.
const (
	reasonStart    = "start"
	reasonAPI      = "api"
	reasonKernel   = "kernel"
	reasonPoll     = "poll"
	reasonSettle   = "settle"
	reasonPeriodic = "periodic"
)

// Agent watches a node.
type Agent struct {
	Options

	objects   *objects
	announced *announcements
	metrics   *metrics
	publisher *publisher // nil where nothing is published
	settler   settler
	latency   latency
	budget    budget

	mu    sync.Mutex
	said  map[string]string // errors that are logged once, until they end or are others
	woken chan string       // reasons

	// Of the last pass.
	index   *judge.Cluster
	version int           // of the objects of index
	at      time.Time     // when it began to read, whether or not it could; zero: there was none
	read    time.Time     // when the node was last read for a pass that judged it; zero: never
	next    time.Time     // when the next one is due
	failed  bool          // it could not judge the node
	polled  bool          // the kernel does not announce all changes
	listed  bool          // the rules are those of iptables
	partial int           // how many passes up to it have not read all files
	grace   time.Duration // that kube-proxy was given
	memory  judge.Memory
	anewAt  time.Time // when the next pass is due that judges everything; zero: at once
	nodesAt time.Time // when the other Nodes may be read again

	inUse func() uint64 // the bytes of objects on the heap
}

// New makes an agent.
func New(o Options) (*Agent, error) {
	a := &Agent{
		Options: o, announced: &announcements{}, metrics: newMetrics(), said: map[string]string{},
		budget: budget{share: o.Share}, woken: make(chan string, 1), inUse: heapInUse,
	}
	var err error
	if a.objects, err = newObjects(o.Client, o.Node); err != nil {
		return nil, err
	}
	a.metrics.tracked = o.Tracked
	a.objects.wake = func() { a.wake(reasonAPI) }
	a.objects.failed = func(kind string, err error) {
		a.metrics.apiErrors.WithLabelValues(kind).Inc()
		a.say("api "+kind, fmt.Errorf("the API's %s: %w", kind, err))
	}
	a.objects.answered = func(kind string) { a.ended("api " + kind) }
	if o.Dialer != nil {
		a.objects.reached = o.Dialer.use
	}
	a.publisher = newPublisher(a)
	return a, nil
}

// Handler serves the metrics, and says that the process lives.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes,
	}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	return mux
}

// maxScrapes is how many requests for the metrics are answered at once: each pod of the cluster may be able to ask.
const maxScrapes = 4

// Serve answers requests until the context ends. The error is that of the listener.
func (a *Agent) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{
		Handler: a.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // its error would be that of the listener
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Run watches the node until the context ends.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { a.objects.run(ctx) })
	wg.Go(func() { a.looks(ctx) })
	if a.publisher != nil {
		wg.Go(func() { a.publisher.run(ctx) })
	}
	wg.Go(func() {
		listen(ctx, a.announces, a.heard, func(err error) {
			a.metrics.errorsSeen.Inc()
			a.say(notifications, err)
		})
	})
	if err := a.awaitObjects(ctx); err != nil {
		return err
	}
	for reason := reasonStart; ; {
		passed := make(chan struct{})
		go func() {
			defer close(passed)
			a.pass(ctx, reason)
		}()
		select {
		case <-passed:
		case <-ctx.Done(): // the process ends, and a pass that does not end at once ends with it
			select {
			case <-passed:
			case <-time.After(lastWait):
			}
			return ctx.Err()
		}
		if over := a.objects.holding.overSince(); !over.IsZero() && time.Since(over) > a.Full {
			return errNothingHeld // all is read again by the next process
		}
		var err error
		if reason, err = a.await(ctx); err != nil {
			return err
		}
	}
}

// lastWait is how long an agent that is to end waits for its pass, which may be in the middle of a file.
const lastWait = time.Second

// notifications are those of the kernel, in the log.
const notifications = "notifications of nf_tables"

// announces notes whether the kernel announces changes.
func (a *Agent) announces(works bool) {
	a.announced.set(works)
	if works {
		a.ended(notifications)
	}
}

// heard notes a notification of the kernel.
func (a *Agent) heard(lost bool) {
	if lost {
		a.metrics.lost.Inc()
	} else {
		a.metrics.announced.Inc()
	}
	a.announced.add(time.Now(), lost)
	a.wake(reasonKernel)
}

// wake has a pass begin soon.
func (a *Agent) wake(reason string) {
	select {
	case a.woken <- reason:
	default: // one is to begin already
	}
}

// awaitObjects waits until all objects were read once.
func (a *Agent) awaitObjects(ctx context.Context) error {
	for !a.objects.synced() {
		a.showState()
		if err := pause(ctx, quietTime); err != nil {
			return err
		}
	}
	a.log("the API's objects were read")
	return nil
}

// stateTime is how old what showState shows becomes.
const stateTime = time.Second

// showState exports what is not of a pass.
func (a *Agent) showState() {
	set := func(g interface{ Set(v float64) }, on bool) {
		if on {
			g.Set(1)
		} else {
			g.Set(0)
		}
	}
	_, works := a.announced.all()
	set(a.metrics.announcing, works)
	set(a.metrics.connected, a.objects.synced() && a.objects.connected())
}

// pass reads the node and judges it.
func (a *Agent) pass(ctx context.Context, reason string) {
	at, before := time.Now(), processorTime()
	a.budget.besides(at, before, a.times())
	limited, end := a.limited(ctx)
	err := a.look(limited, at)
	end()
	now, used := time.Now(), processorTime()
	if reason == reasonStart { // which judges everything, and the next one shall not wait for minutes
		a.budget.begin(now, used)
	} else {
		a.budget.pass(now, used, a.times())
	}
	a.metrics.cpu.Add((used - before).Seconds())
	a.next, a.failed = now.Add(a.untilNext()), err != nil
	a.showState()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.noteChanges()
		a.metrics.failures.Inc()
		a.publisher.failed(err)
		a.next = now.Add(jittered(min(a.Full, failurePause)))
		a.say("pass", fmt.Errorf("the node was not judged: %w", err))
	default:
		a.metrics.passes.WithLabelValues(reason).Inc()
		a.ended("pass")
	}
}

// failurePause is how long after a pass that failed the next one is due.
const failurePause = 30 * time.Second

// jittered is a time, a tenth of it more or less: the agents of many nodes shall not work at the same moments.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d)) //nolint:gosec // no secret
}

// look does the work of a pass. at is when it begins.
func (a *Agent) look(ctx context.Context, at time.Time) (err error) {
	defer func() {
		// Of a node that this program cannot cope with nothing is claimed, and the agent goes on.
		if bug := recover(); bug != nil {
			a.anewAt = time.Time{}
			err = fmt.Errorf("its files trigger a defect of this program, please report it: %v", bug)
		}
	}()
	a.at = at
	if !a.objects.holding.overSince().IsZero() {
		return errNothingHeld
	}
	files, err := a.Read(ctx)
	if err != nil {
		return err
	}
	end := time.Now()
	state, err := nodestate.LoadToCompare(files)
	if err != nil {
		return err
	}
	a.noteUnread(state)
	connected := a.objects.connected()
	if !at.Before(a.anewAt) {
		a.memory.Forget()
		a.anewAt = at.Add(jittered(a.Full))
		a.objects.readAgain()
		if a.objects.knowsOthers() { // of which one may be gone
			a.readNodes(ctx, at)
		}
	}
	got := a.judge(ctx, state)
	if ctx.Err() == nil && asksForNodes(&got) && !at.Before(a.nodesAt) && a.readNodes(ctx, at) {
		got = a.judge(ctx, state)
	}
	if got.Error != "" && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if got.Error != "" {
		return errors.New(got.Error)
	}
	a.grace = graceOf(state.Config, &state.Proxy, connected)
	a.settler.pass(at, subjectsOf(&got), a.objects.lastChange, a.grace)
	a.polled = a.isPolled(&got)
	a.listed = got.Mode != nil && got.Mode.Actual == kubeproxy.IPTables
	a.measure(&got, at, end)
	v := a.viewOf(&got, state)
	v.notHeld = len(a.index.Left)
	if v.notJudged > 0 {
		why := context.Cause(ctx)
		if why == nil && v.notHeld > 0 {
			why = errNotHeld
		}
		if why == nil {
			why = errTooMuch
		}
		a.sayOf(allServices, fmt.Sprint(v.notJudged), fmt.Errorf("%d Services were not judged: %w", v.notJudged, why))
	} else {
		a.ended(allServices)
	}
	v.pending = a.latency.oldest()
	v.at, v.took = at, time.Since(at)
	if !a.read.IsZero() {
		v.polling = at.Sub(a.read)
	}
	a.read = at
	a.metrics.show(v)
	a.publisher.judged(&got, v, &a.settler)
	return nil
}

// readNodes reads the other Nodes for a pass that began at a time, and returns whether it could.
func (a *Agent) readNodes(ctx context.Context, at time.Time) bool {
	a.nodesAt = at.Add(jittered(a.Full))
	if err := a.objects.readNodes(ctx); err != nil {
		a.nodesAt = at.Add(jittered(min(a.Full, failurePause)))
		a.say(otherNodes, err)
		return false
	}
	a.ended(otherNodes)
	return true
}

// judge judges the node by the API's objects as they are now.
func (a *Agent) judge(ctx context.Context, state *nodestate.State) report.NodeReport {
	objects, version := a.objects.cluster()
	if a.index == nil || version != a.version {
		a.index = nil // two at once are much memory
		a.index, a.version = judge.NewCluster(objects), version
	}
	got := judge.Node(a.index, state, judge.Request{
		Backwards: true, PerPathService: true, Memory: &a.memory, Done: ctx.Done(), WithoutRows: true,
	})
	a.metrics.judged(&a.memory)
	return got
}

// otherNodes are the Nodes but this one, in the log.
const otherNodes = "other Nodes"

// asksForNodes tells whether the addresses of the other Nodes may change a report: with them a gateway that this node
// has sent nothing to for a while is known to be a Node.
func asksForNodes(r *report.NodeReport) bool {
	return slices.ContainsFunc(r.Paths, func(p report.Path) bool {
		return slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return f.Code == judge.NextHopUnknown })
	})
}

// isPolled tells whether the kernel does not announce the changes of all rules of a node: it does not of the legacy
// tables and of virtual servers.
func (a *Agent) isPolled(r *report.NodeReport) bool {
	_, works := a.announced.all()
	if !works || r.Mode == nil {
		return true
	}
	switch m := r.Mode; {
	case m.Actual == kubeproxy.IPVS:
		return true
	case m.Backend != "":
		return m.Backend != string(netfilter.BackendNFT)
	case m.Actual == "":
		return a.polled // nothing shows where the rules are, or were: as before
	}
	return false
}

// noteChanges notes the changes of endpoints since the last pass, of each Service the first.
func (a *Agent) noteChanges() {
	for _, c := range a.objects.take() {
		a.latency.changed(c.of, c.at)
	}
}

// measure takes the time that the rules took to follow the API.
func (a *Agent) measure(r *report.NodeReport, at, end time.Time) {
	a.noteChanges()
	heard, _ := a.announced.all()
	mode := ""
	if r.Mode != nil {
		mode = r.Mode.Actual
	}
	for _, x := range a.latency.pass(r, at, end, &heard, a.polled, a.settler.countedBefore) {
		if x.why != "" {
			a.metrics.unmeasured.WithLabelValues(x.why).Inc()
			continue
		}
		a.metrics.latency.WithLabelValues(string(x.family), mode).Observe(x.time.Seconds())
	}
	if len(a.latency.changes) == 0 {
		a.announced.forget(at)
	}
}

// say logs an error, once until it has ended.
func (a *Agent) say(what string, err error) { a.sayOf(what, "", err) }

// sayOf is say, again where it is about something else than before.
func (a *Agent) sayOf(what, about string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if was, known := a.said[what]; !known || was != about {
		a.said[what] = about
		a.log("error: " + err.Error())
	}
}

// ended notes that an error has ended.
func (a *Agent) ended(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.said[what]; known {
		delete(a.said, what)
		a.log("it works again: " + what)
	}
}

func (a *Agent) log(line string) {
	if a.Log != nil {
		a.Log(line)
	}
}
