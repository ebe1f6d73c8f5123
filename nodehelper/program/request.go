// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// Request is what a plugin asks for: wire.ProgramParams with its plan decoded.
type Request struct {
	Plan  *plan.Plan
	Facts plan.Facts // what the plugin knows of the cluster's addresses
	wire.ProgramOptions
}

// DecodeRequest decodes the plan of a request. What the plan says is not checked yet, see [Request.Check].
func DecodeRequest(params wire.ProgramParams) (*Request, error) {
	r := &Request{ProgramOptions: params.ProgramOptions}
	for _, part := range []struct {
		data json.RawMessage
		to   any
	}{{params.Plan, &r.Plan}, {params.Facts, &r.Facts}} {
		if part.data == nil {
			continue
		}
		if err := json.Unmarshal(part.data, part.to); err != nil {
			return nil, fmt.Errorf("the parameters of the request cannot be read: %w", err)
		}
	}
	return r, nil
}

// Check says what is wrong with a request.
func (r *Request) Check() error {
	if r.Plan == nil {
		return errors.New("there is no plan")
	}
	if err := r.Plan.Check(); err != nil {
		return err
	}
	for _, class := range r.Allow {
		if !slices.Contains(plan.Askable(), class) {
			return fmt.Errorf("%q is not a class of addresses that can be allowed: use one of %s", class,
				strings.Join(plan.Askable(), ", "))
		}
	}
	return r.ProgramOptions.Check()
}
