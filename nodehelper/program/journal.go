// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// journalDir is below the node's /run, whose contents end with the kernel's own state: after a reboot there is nothing
// to undo.
const journalDir = "run/svcproxy"

// Record is what was done on a node, written and synced before it is done. Whoever reads it can undo it, however far it
// got.
type Record struct {
	Version   int    `json:"version"`
	Mode      string `json:"mode"`
	Backend   string `json:"backend,omitempty"` // of iptables: nft or legacy
	Scheduler string `json:"scheduler,omitempty"`
	Log       bool   `json:"log,omitempty"` // of userspace: each connection
	// By says who asked for it, for people; Run is the run of the plugin that did.
	By      string    `json:"by"`
	Run     string    `json:"run"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	// Ends is Expires by the clock that nobody can set, in time since the system's start; see [journal.read].
	Ends   time.Duration `json:"ends"`
	Holder Process       `json:"holder"`
	// Expirer is the process that undoes the record at its time if the holder is gone; nil: none was started.
	Expirer *Process `json:"expirer,omitempty"`
	Before  Before   `json:"before"`

	Plan plan.Plan `json:"plan"`
	// Earlier is the state of the plan that an update replaces, while it does.
	Earlier *plan.Plan `json:"earlier,omitempty"`
	// Left are sentences about what undoing has left on the node, as it is not ours (any more).
	Left []string `json:"-"`
	// Complete says that the whole plan was programmed. Until then it is unknown how much of it.
	Complete bool `json:"complete,omitempty"`
}

// leave notes what undoing leaves on the node.
func (r *Record) leave(what ...string) { r.Left = append(r.Left, what...) }

// recordVersion is the version of the records that this code writes. Records of other versions are an error.
const recordVersion = 1

// Before is the state before a plan was programmed, as far as undoing needs it.
type Before struct {
	// Tables and Chains are those of nf_tables and their base chains: "ip nat", "ip nat PREROUTING". What iptables-nft
	// makes besides them for its own use goes with the rules.
	Tables []string `json:"tables,omitempty"`
	Chains []string `json:"chains,omitempty"`
	IPVS   *IPVS    `json:"ipvs,omitempty"`
}

// Process is a process of the node, told from a later one of the same number.
type Process struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // in clock ticks since the system's start (/proc/PID/stat)
}

// UnreadableError is a record that cannot be read.
type UnreadableError struct {
	Path string
	Plan string // by the name of the file; it may be no name of a plan
	Err  error

	byName bool // the rules of the plan have been removed by their names
}

// Error says what is wrong, and what to do.
func (u *UnreadableError) Error() string {
	what := "what it records is not undone: cleanup --running removes the rules of its plan by their names"
	if u.byName {
		what = "the rules of its plan are removed, by their names. Virtual servers and addresses that it may record are " +
			"not known: remove the file when there are none"
	}
	return fmt.Sprintf("the record %s of the journal cannot be read: %v; %s", u.Path, u.Err, what)
}

// Unwrap returns the reason.
func (u *UnreadableError) Unwrap() error { return u.Err }

// check returns what is wrong with a record: one that passes speaks of nothing but what this package makes.
func (r *Record) check() error {
	if err := r.Plan.Check(); err != nil {
		return err
	}
	if r.Earlier != nil {
		if err := r.Earlier.Check(); err != nil {
			return fmt.Errorf("the earlier state of the plan: %w", err)
		}
		if r.Earlier.Name != r.Plan.Name {
			return fmt.Errorf("the earlier state of the plan is %q, another one", r.Earlier.Name)
		}
	}
	switch {
	case r.Holder.PID < 1, r.Expirer != nil && r.Expirer.PID < 1:
		return errors.New("it names an impossible process: its number is below 1")
	case !slices.Contains(wire.Modes, r.Mode):
		return fmt.Errorf("%.20q is not a mode", r.Mode)
	case wire.NeedsBackend(r.Mode) && r.Backend != wire.BackendNFT && r.Backend != wire.BackendLegacy:
		return fmt.Errorf("%.20q is not a backend of iptables", r.Backend)
	case r.Before.IPVS == nil:
		return nil
	}
	return r.Before.IPVS.check(&r.Plan, r.Earlier)
}

// overlap returns a frontend that two plans share.
func overlap(a, b *plan.Plan) *plan.Frontend {
	type key struct {
		address  string
		protocol string
	}
	has := map[key]bool{}
	for i := range a.Frontends {
		has[key{a.Frontends[i].Address.String(), a.Frontends[i].Protocol}] = true
	}
	for i := range b.Frontends {
		if f := &b.Frontends[i]; has[key{f.Address.String(), f.Protocol}] {
			return f
		}
	}
	return nil
}
