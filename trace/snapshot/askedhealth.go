// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// HealthFile has the answers of health-check ports ([HealthAnswers]). It is made on request, and is in no snapshot.
const HealthFile = "health-checks.json"

// HealthAnswer is what a health-check port of a node answered to an HTTP request, as load balancers send it.
type HealthAnswer struct {
	At   netip.AddrPort `json:"at"`
	Code int            `json:"code,omitempty"` // of HTTP; 0 without an answer
	// KubeProxy: the answer is of the form of kube-proxy's. The other fields are what it says there.
	KubeProxy bool   `json:"kubeProxy,omitempty"`
	Service   string `json:"service,omitempty"` // namespace/name
	Local     int    `json:"localEndpoints,omitempty"`
	// Healthy is whether kube-proxy calls itself healthy; nil where it does not say, as older
	// versions do not.
	Healthy *bool  `json:"serviceProxyHealthy,omitempty"`
	Error   string `json:"error,omitempty"` // why there is no answer
}

// HealthAnswers are the answers of one node.
type HealthAnswers struct {
	List []HealthAnswer `json:"list"`
}

// ParseHealthAnswers reads the answers that a helper sent.
func ParseHealthAnswers(data []byte) (*HealthAnswers, error) {
	if err := bounds.NodeJSON.Check(HealthFile, data); err != nil {
		return nil, err
	}
	var out HealthAnswers
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", HealthFile, err)
	}
	return &out, nil
}
