// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// NamesFile has the answers to name queries of a pod ([NameAnswers]). It is made on request, and is in no snapshot.
const NamesFile = "names.json"

// NameQuestion is a name query.
type NameQuestion struct {
	Server netip.AddrPort `json:"server"`
	Name   string         `json:"name"` // whole, without the dot at its end
	Type   string         `json:"type"` // A, AAAA
	TCP    bool           `json:"tcp,omitempty"`
}

// NameAnswer is what a server answered.
type NameAnswer struct {
	NameQuestion

	Code      string       `json:"code,omitempty"`      // NOERROR, NXDOMAIN, SERVFAIL, …; empty without an answer
	Addresses []netip.Addr `json:"addresses,omitempty"` // of the type that was asked for
	Alias     string       `json:"alias,omitempty"`     // the name that it is another one for (CNAME)
	Truncated bool         `json:"truncated,omitempty"`
	Error     string       `json:"error,omitempty"` // why there is no answer
}

// NameAnswers are the answers to the queries of one pod.
type NameAnswers struct {
	List []NameAnswer `json:"list"`
}

// ParseNameAnswers reads the answers that a helper sent.
func ParseNameAnswers(data []byte) (*NameAnswers, error) {
	if err := bounds.NodeJSON.Check(NamesFile, data); err != nil {
		return nil, err
	}
	var out NameAnswers
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", NamesFile, err)
	}
	return &out, nil
}
