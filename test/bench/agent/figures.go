// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metrics are the values of series, by their names with labels.
type metrics map[string]float64

// sum adds up the series of a metric.
func (m metrics) sum(name string) (sum float64) {
	for series, v := range m {
		if of, _, _ := strings.Cut(series, "{"); of == name {
			sum += v
		}
	}
	return sum
}

// scrape reads metrics; none while nobody answers.
func scrape(ctx context.Context, url string) metrics {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil
	}
	m := metrics{}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if i := strings.LastIndexByte(s.Text(), ' '); i > 0 && s.Text()[0] != '#' {
			if v, err := strconv.ParseFloat(s.Text()[i+1:], 64); err == nil {
				m[s.Text()[:i]] = v
			}
		}
	}
	return m
}

// until waits until the metrics of a program are as they should be.
func until(
	ctx context.Context, url string, most time.Duration, is func(metrics) bool, programs ...*program,
) (metrics, error) {
	for begin := time.Now(); ; {
		if m := scrape(ctx, url); is(m) {
			return m, nil
		}
		if time.Since(begin) > most {
			return nil, fmt.Errorf("%s: not so after %v", url, most)
		}
		if err := rest(ctx, 200*time.Millisecond, programs...); err != nil {
			return nil, err
		}
	}
}

// rest waits; it fails where a program ends meanwhile.
func rest(ctx context.Context, d time.Duration, programs ...*program) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, p := range programs {
		select {
		case err := <-p.ended:
			return err
		default:
		}
	}
	return nil
}

// use is what a process has used, with the programs that it has run.
type use struct {
	cpu       time.Duration
	rss, most int // bytes
}

// useOf reads it (proc(5)).
func useOf(pid int) (u use, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	words := strings.Fields(rest)
	if len(words) < 15 {
		return u, fmt.Errorf("/proc/%d/stat is %q", pid, stat)
	}
	const tick = 10 * time.Millisecond // USER_HZ
	for _, w := range words[11:15] {   // utime, stime, cutime, cstime
		n, err := strconv.Atoi(w)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(n) * tick
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		words := strings.Fields(line)
		for name, to := range map[string]*int{"VmRSS:": &u.rss, "VmHWM:": &u.most} {
			if len(words) == 3 && words[0] == name {
				if *to, err = strconv.Atoi(words[1]); err != nil {
					return u, err
				}
				*to *= 1024
			}
		}
	}
	return u, nil
}

// record is one measurement.
type record struct {
	o            *options
	agent, proxy *program
	api          *api
	cluster      *cluster

	rss     []int
	counted map[string]bool // findings
	unlike  float64         // the most paths that were neither a match nor settling
}

// run measures, and prints.
func (r *record) run(ctx context.Context, out io.Writer) error {
	r.counted = map[string]bool{}
	begin := time.Now()
	passed := func(m metrics) bool { return m.sum("svcproxy_passes_total") > 0 }
	first, err := until(ctx, agentMetrics, 5*time.Minute, passed, r.agent, r.proxy)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  the first pass has ended after %.1fs: %.0f paths, %s\n", time.Since(begin).Seconds(),
		first.sum("svcproxy_paths"), verdicts(first))
	if err := r.phase(ctx, r.o.settle); err != nil {
		return err
	}
	before, err := useOf(r.agent.Process.Pid)
	if err != nil {
		return err
	}
	was := scrape(ctx, agentMetrics)
	proxyBefore, err := useOf(r.proxy.Process.Pid)
	if err != nil {
		return err
	}
	r.rss, begin = nil, time.Now()
	if err := r.phase(ctx, r.o.measure); err != nil {
		return err
	}
	took := time.Since(begin)
	after, err := useOf(r.agent.Process.Pid)
	if err != nil {
		return err
	}
	proxyAfter, err := useOf(r.proxy.Process.Pid)
	if err != nil {
		return err
	}
	share := func(a, b use) float64 { return 100 * (b.cpu - a.cpu).Seconds() / took.Seconds() }
	now := scrape(ctx, agentMetrics)
	grown := func(name string) float64 { return now.sum(name) - was.sum(name) }
	slices.Sort(r.rss)
	mb := func(n int) int { return (n + 1<<19) >> 20 }
	fmt.Fprintf(out, "  in %.0fs: %.2f %% of a core (passes %.2f %%); kube-proxy %.2f %%\n", took.Seconds(),
		share(before, after), 100*grown("svcproxy_passes_cpu_seconds_total")/took.Seconds(), share(proxyBefore, proxyAfter))
	fmt.Fprintf(out, "  RSS: median %d MB, most %d MB, most ever %d MB; Go's heap in use %.0f MB\n",
		mb(r.rss[len(r.rss)/2]), mb(r.rss[len(r.rss)-1]), mb(after.most), now["go_memstats_heap_inuse_bytes"]/(1<<20))
	passes := grown("svcproxy_passes_total")
	fmt.Fprintf(out, "  %.0f passes, one every %.1fs, of %.2fs of a processor each; paths judged %.0f, taken over %.0f\n",
		passes, took.Seconds()/max(passes, 1), grown("svcproxy_passes_cpu_seconds_total")/max(passes, 1),
		delta(was, now, `svcproxy_paths_judged_total{how="judged"}`),
		delta(was, now, `svcproxy_paths_judged_total{how="reused"}`))
	if n := grown("svcproxy_api_to_kernel_seconds_count"); n > 0 {
		fmt.Fprintf(out, "  API to kernel: %.0f measured, %.2fs on average\n", n,
			grown("svcproxy_api_to_kernel_seconds_sum")/n)
	}
	r.api.mu.Lock()
	fmt.Fprintf(out, "  at the end: %s; NodeReport written %d times, %d bytes\n\n", verdicts(now), r.api.reports,
		r.api.bytes)
	r.api.mu.Unlock()
	if r.o.keep != "" {
		if err := os.WriteFile(filepath.Join(r.o.keep, "report-"+r.o.mode+".json"), r.api.last, 0o600); err != nil {
			return err
		}
	}
	if len(r.counted) > 0 {
		some := slices.Sorted(maps.Keys(r.counted))
		return fmt.Errorf("%d findings have counted, though nothing is wrong: %v", len(some), some[:min(len(some), 3)])
	}
	if r.unlike > 0 {
		return fmt.Errorf("%.0f paths were neither a match nor settling", r.unlike)
	}
	return nil
}

func delta(was, now metrics, series string) float64 { return now[series] - was[series] }

// verdicts lists the paths by their verdicts.
func verdicts(m metrics) string {
	var out []string
	for _, s := range slices.Sorted(maps.Keys(m)) {
		if v, ok := strings.CutPrefix(s, `svcproxy_paths{verdict="`); ok && m[s] > 0 {
			out = append(out, fmt.Sprintf("%.0f %s", m[s], strings.TrimSuffix(v, `"}`)))
		}
	}
	return strings.Join(out, ", ")
}

// phase changes endpoints for a time, and looks at the agent every second.
func (r *record) phase(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	next, look := time.Now(), time.Now()
	for time.Now().Before(end) {
		if now := time.Now(); !now.Before(next) {
			r.cluster.change(r.api)
			next = next.Add(r.o.every)
		}
		if now := time.Now(); !now.Before(look) {
			look = now.Add(time.Second)
			u, err := useOf(r.agent.Process.Pid)
			if err != nil {
				return errors.Join(err, rest(ctx, time.Second, r.agent))
			}
			r.rss = append(r.rss, u.rss)
		}
		if len(r.rss)%10 == 0 {
			r.findings(scrape(ctx, agentMetrics))
		}
		if err := rest(ctx, min(time.Until(next), time.Second), r.agent, r.proxy); err != nil {
			return err
		}
	}
	r.findings(scrape(ctx, agentMetrics))
	return nil
}

// findings notes what counts.
func (r *record) findings(m metrics) {
	for s := range m {
		if strings.HasPrefix(s, "svcproxy_findings{") {
			r.counted[s] = true
		}
	}
	r.unlike = max(r.unlike, m[`svcproxy_paths{verdict="Mismatch"}`]+m[`svcproxy_paths{verdict="Unknown"}`]+
		m[`svcproxy_paths{verdict="Warning"}`])
}
