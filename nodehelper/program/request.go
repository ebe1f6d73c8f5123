// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// Request is what a plugin asks for: wire.ProgramParams with its plan decoded.
type Request struct {
	Plan *plan.Plan
	wire.ProgramOptions
}

// DecodeRequest decodes the plan of a request. What the plan says is not checked yet, see [Request.Check].
func DecodeRequest(params wire.ProgramParams) (*Request, error) {
	r := &Request{ProgramOptions: params.ProgramOptions}
	if params.Plan == nil {
		return r, nil
	}
	if err := json.Unmarshal(params.Plan, &r.Plan); err != nil {
		return nil, fmt.Errorf("the parameters of the request cannot be read: %w", err)
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
	return r.ProgramOptions.Check()
}
