// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// config reads kube-proxy's configuration: that of the running process, else that of its file.
func (l *loader) config() error {
	for _, source := range []struct {
		file  string
		parse func([]byte) (kubeproxy.Config, error)
	}{{snapshot.ConfigzFile, kubeproxy.ParseConfigz}, {snapshot.ProxyConfigFile, wholeConfig}} {
		c, ok, err := read(l, source.file, false, source.parse, nil)
		if err != nil {
			return err
		}
		if ok && l.Config == nil {
			c.Source = source.file
			l.Config = &c
		}
	}
	return nil
}

// wholeConfig reads a configuration file that is not cut off: half a YAML document is one, too, and what it lacks would
// have its default.
func wholeConfig(data []byte) (kubeproxy.Config, error) {
	if host.Unterminated(data) {
		return kubeproxy.Config{}, fmt.Errorf("it is cut off in line %d", bytes.Count(data, []byte("\n"))+1)
	}
	return kubeproxy.ParseConfig(data)
}

// StatusFiles are the files that a kube-proxy that does not run does not provide; the last one is not its own response.
var StatusFiles = []string{
	snapshot.ProxyModeFile, snapshot.MetricsFile, snapshot.ConfigzFile, snapshot.HealthzFile, snapshot.LivezFile,
	snapshot.ProxyConfigFile,
}

// proxy reads what kube-proxy reports about itself.
func (l *loader) proxy() (err error) {
	p := &l.Proxy
	p.Failures, p.Pending = -1, -1
	if p.Reported, _, err = read(l, snapshot.ProxyModeFile, false, kubeproxy.ParseMode, nil); err != nil {
		return err
	}
	if p.Healthz, _, err = read(l, snapshot.HealthzFile, false, kubeproxy.ParseHealth, nil); err != nil {
		return err
	}
	if p.Livez, _, err = read(l, snapshot.LivezFile, false, kubeproxy.ParseHealth, nil); err != nil {
		return err
	}
	metrics := func(data []byte) (struct{}, error) { return struct{}{}, p.ReadMetrics(data) }
	some := func(_ struct{}, err error) bool {
		_, ok := errors.AsType[*kubeproxy.PartialError](err)
		return ok
	}
	if _, _, err := read(l, snapshot.MetricsFile, false, metrics, some); err != nil {
		return err
	}
	for _, f := range StatusFiles[:len(StatusFiles)-1] {
		// What is there and cannot be read may be an answer, too.
		p.Responds = p.Responds || l.Has(f) && l.Reading(f).Reason != errEmpty.Error()
	}
	return l.processes()
}

// processes reads which processes run. What a list lacks that is cut off may run all the same.
func (l *loader) processes() error {
	l.Proxy.Processes, l.Proxy.Cgroups = map[string]int{}, map[string]string{}
	if data, err := l.evidence(snapshot.ProcessesFile, true); err != nil || data == nil {
		return err
	}
	list, _, err := l.from.Processes()
	if err == nil && !l.ListsUnread() && !slices.ContainsFunc(list, func(p snapshot.Process) bool { return p.PID == 1 }) {
		err = errors.New("it has no process 1: it does not list the node's processes")
	}
	l.Proxy.Listed = err == nil
	l.unreadable(snapshot.ProcessesFile, err, len(list) > 0)
	for _, x := range list {
		if x.Not != "" {
			l.Proxy.NotTaken = append(l.Proxy.NotTaken, kubeproxy.NotTaken{PID: x.PID, Name: x.Name, Why: x.Not})
			continue
		}
		if l.Proxy.Processes[x.Name] != 0 {
			continue // it was started by the one before, as which it counts until it executes another program
		}
		l.Proxy.Processes[x.Name], l.Proxy.Cgroups[x.Name] = x.PID, x.Cgroup
	}
	return nil
}
