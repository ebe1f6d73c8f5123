// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"bytes"
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// config reads kube-proxy's configuration: that of the running process, else that of its file.
func (l *loader) config() error {
	for _, source := range []struct {
		file  string
		parse func([]byte) (kubeproxy.Config, error)
	}{{snapshot.ConfigzFile, kubeproxy.ParseConfigz}, {snapshot.ProxyConfigFile, kubeproxy.ParseConfig}} {
		data, err := l.file(source.file)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		c, err := source.parse(data)
		if err != nil {
			return fmt.Errorf("%s: %w", source.file, err)
		}
		c.Source = source.file
		l.Config = &c
		return nil
	}
	return nil
}

// StatusFiles are the files that a kube-proxy that does not run does not provide; the last one is not its own response.
var StatusFiles = []string{
	snapshot.ProxyModeFile, snapshot.MetricsFile, snapshot.ConfigzFile, snapshot.HealthzFile, snapshot.LivezFile,
	snapshot.ProxyConfigFile,
}

// proxy reads what kube-proxy reports about itself.
func (l *loader) proxy() error {
	var in kubeproxy.Responses
	for _, x := range []struct {
		name string
		data *[]byte
	}{{snapshot.ProxyModeFile, &in.ProxyMode}, {snapshot.HealthzFile, &in.Healthz}} {
		var err error
		if *x.data, err = l.file(x.name); err != nil {
			return err
		}
	}
	// Metrics are optional; a damaged file must not prevent reading the rules.
	in.Metrics, _ = l.file(snapshot.MetricsFile)
	for _, f := range StatusFiles[:len(StatusFiles)-1] {
		in.Any = in.Any || l.Has(f)
	}
	list, listed, err := l.from.Processes()
	if err != nil {
		return err
	}
	l.Proxy.Listed, l.Proxy.Processes = listed, map[string]int{}
	for _, x := range list {
		l.Proxy.Processes[x.Name] = x.PID
	}
	return l.Proxy.Read(&in)
}
