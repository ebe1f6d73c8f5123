// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// Health is kube-proxy's response to /healthz or /livez, with status 200 or 503 (pkg/proxy/healthcheck, in 1.24 to 1.32
// proxier_health.go, since 1.33 proxy_health.go).
type Health struct {
	// LastUpdated is CurrentTime while kube-proxy is healthy, in every version: when it last wrote is told by its metrics.
	LastUpdated time.Time
	// CurrentTime is when it answered, by the clock of the node.
	CurrentTime time.Time
	// NodeEligible is false while the node is being deleted; nil in /livez, and before 1.28.
	NodeEligible *bool
	// Healthy says whether no change waits for too long; nil before 1.33, where LastUpdated tells.
	Healthy *bool
	// Families tells the same of each IP family; nil before 1.33.
	Families map[string]bool
}

// ParseHealth reads such a response. The error says what was expected.
func ParseHealth(data []byte) (*Health, error) {
	var raw struct {
		LastUpdated  moment          `json:"lastUpdated"`
		CurrentTime  moment          `json:"currentTime"`
		NodeEligible *bool           `json:"nodeEligible"`
		Healthy      *bool           `json:"healthy"`
		Status       json.RawMessage `json:"status"`
	}
	switch err := json.Unmarshal(data, &raw); {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("it is empty")
	case err != nil:
		return nil, fmt.Errorf("it is not what kube-proxy answers: %w", err)
	case time.Time(raw.CurrentTime).IsZero():
		return nil, errors.New("it is not what kube-proxy answers: it has no currentTime")
	}
	h := &Health{
		LastUpdated: time.Time(raw.LastUpdated), CurrentTime: time.Time(raw.CurrentTime), NodeEligible: raw.NodeEligible,
		Healthy: raw.Healthy,
	}
	var families map[string]struct {
		Healthy *bool `json:"healthy"`
	}
	// Families are a detail of Healthy: that of another version must not cost the rest.
	if json.Unmarshal(raw.Status, &families) == nil {
		for name, f := range families {
			if f.Healthy == nil {
				continue
			}
			if h.Families == nil {
				h.Families = map[string]bool{}
			}
			h.Families[name] = *f.Healthy
		}
	}
	return h, nil
}

// moment is a time as a kube-proxy writes it: RFC 3339 since 1.33; before, as Go prints one (time.Time.String):
// "2026-01-02 15:04:05.999999999 +0000 UTC m=+0.000000001". The zone's abbreviation may be any, and m= is there where
// the time has a reading of the monotonic clock.
type moment time.Time

// UnmarshalJSON reads one; null and "" are the zero time.
func (m *moment) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if text == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		const parts = 3 // date, time, offset
		f := strings.Fields(text)
		if len(f) < parts {
			return fmt.Errorf("%.60q is not a time", text)
		}
		if t, err = time.Parse("2006-01-02 15:04:05.999999999 -0700", strings.Join(f[:parts], " ")); err != nil {
			return fmt.Errorf("%.60q is not a time", text)
		}
	}
	*m = moment(t)
	return nil
}

// Draining tells whether the response is that of a node that is being deleted (its object, or by the taint of the
// cluster autoscaler): /healthz then fails so that load balancers send no new connections, and kube-proxy works on.
func (h *Health) Draining() bool { return h != nil && h.NodeEligible != nil && !*h.NodeEligible }

// skew is the tolerance of comparisons of LastUpdated with CurrentTime.
const skew = time.Second

// late tells whether changes wait for too long, whatever becomes of the node. known is false where the response does
// not tell: that of a kube-proxy before 1.33 on a node that drains.
func (h *Health) late() (late, known bool) {
	switch {
	case h == nil:
		return false, false
	case h.Healthy != nil:
		return !*h.Healthy, true
	case h.Draining():
		return false, false
	}
	return h.CurrentTime.Sub(h.LastUpdated) > skew, true
}

// Response is the one of kube-proxy's responses that was read, /healthz first; nil where neither was.
func (s *Status) Response() *Health {
	if s.Healthz != nil {
		return s.Healthz
	}
	return s.Livez
}

// Unhealthy returns the response by which changes wait for too long; nil where none says so. families are those whose
// changes wait, where the response tells.
func (s *Status) Unhealthy() (by *Health, families []string) {
	for _, h := range []*Health{s.Healthz, s.Livez} {
		if late, _ := h.late(); !late {
			continue
		}
		for _, f := range slices.Sorted(maps.Keys(h.Families)) {
			if !h.Families[f] {
				families = append(families, f)
			}
		}
		return h, families
	}
	return nil, nil
}

// Healthy tells whether kube-proxy says that it is healthy, on a node that drains also.
func (s *Status) Healthy() bool {
	_, known := s.Healthz.late()
	_, known2 := s.Livez.late()
	by, _ := s.Unhealthy()
	return by == nil && (known || known2)
}

// modeName is the form of what kube-proxy answers to /proxyMode, in all versions: a word.
var modeName = lazyregexp.New(`^[a-z][a-z0-9-]{1,30}$`)

// ParseMode reads the response of /proxyMode. Which modes there are is for the judgement to say. The error says what
// was expected.
func ParseMode(data []byte) (string, error) {
	text := strings.TrimSpace(string(data))
	switch {
	case text == "":
		return "", errors.New("it is empty")
	case !modeName().MatchString(text):
		return "", fmt.Errorf("%.40q is not a mode, such as %s", text, IPTables)
	}
	return text, nil
}
