// SPDX-License-Identifier: Apache-2.0

// Package healthcheck asks the health-check ports of Services (healthCheckNodePort) on the node itself, as load
// balancers do: one HTTP request each. It is bounded in requests, time and bytes, and what answers is not trusted.
package healthcheck

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Limits of a run, whatever is asked for.
const (
	MaxPorts  = 32
	patience  = 2 * time.Second
	maxAnswer = 4096 // bytes of an answer that are read
)

// Ask asks all ports at once, and returns the answers in their order.
func Ask(ctx context.Context, ports []netip.AddrPort) (*snapshot.HealthAnswers, error) {
	if len(ports) > MaxPorts {
		return nil, bounds.Errorf("%d health-check ports: at most %d were expected", len(ports), MaxPorts)
	}
	transport := &http.Transport{
		Proxy: nil, DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswer,
		DialContext: (&net.Dialer{Timeout: patience}).DialContext,
	}
	client := &http.Client{
		Transport: transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	out := &snapshot.HealthAnswers{List: make([]snapshot.HealthAnswer, len(ports))}
	var wg sync.WaitGroup
	for i, at := range ports {
		wg.Go(func() { out.List[i] = ask(ctx, client, at) })
	}
	wg.Wait()
	return out, ctx.Err()
}

func ask(ctx context.Context, client *http.Client, at netip.AddrPort) snapshot.HealthAnswer {
	a := snapshot.HealthAnswer{At: at}
	if !at.IsValid() || at.Port() == 0 {
		a.Error = "not an address and port to ask"
		return a
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+"/", http.NoBody)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	answer, err := client.Do(request)
	if err != nil {
		a.Error = reason(err)
		return a
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		a.Error = reason(err)
		return a
	}
	a.Code = answer.StatusCode
	read(data, &a)
	return a
}

// read reads the body of an answer (hcInstance.ServeHTTP in pkg/proxy/healthcheck/service_health.go). Another program's
// is left aside.
func read(data []byte, a *snapshot.HealthAnswer) {
	var body struct {
		Service *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"service"`
		Local   *int  `json:"localEndpoints"`
		Healthy *bool `json:"serviceProxyHealthy"`
	}
	if json.Unmarshal(data, &body) != nil || body.Service == nil || body.Local == nil {
		return
	}
	a.KubeProxy, a.Local, a.Healthy = true, *body.Local, body.Healthy
	a.Service = body.Service.Namespace + "/" + body.Service.Name
}

// reason is an error without the address, which the question has.
func reason(err error) string {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "no answer in time"
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}
	return err.Error()
}
