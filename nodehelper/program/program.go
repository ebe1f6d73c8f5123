// SPDX-License-Identifier: Apache-2.0

// Package program puts the paths of a plan on a node, and takes them away again.
//
// What it does it first writes into a journal on the node (see [Record]), so that it can be undone however it ends: by whoever did it, at
// its time or before, or by anybody else once that one is gone. Undoing looks at what is there, and not at how far doing got; it may be
// repeated. One at a time may change a node: a lock on the journal sees to that.
package program

import (
	"errors"
	"fmt"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// The modes that a path can be programmed in.
const (
	IPTables  = "iptables"
	NFTables  = "nftables"
	IPVSMode  = "ipvs"
	Userspace = "userspace"
)

// Modes are all of them.
var Modes = []string{IPTables, NFTables, IPVSMode, Userspace}

// The backends of iptables.
const (
	BackendNFT    = "nft"
	BackendLegacy = "legacy"
)

// Options say where.
type Options struct {
	// Root is where the node's file system is.
	Root string
	// Roots are the file systems whose iptables is run, the first that has it; nil: this process's own. Who wrote the rules that are there has to
	// understand those that come to stand beside them: a newer iptables-nft writes what an older one cannot read.
	Roots []string
	// Run is the run of the plugin; By says who that is, for people.
	Run, By string
}

// Request is what to program.
type Request struct {
	Plan      *plan.Plan    `json:"plan"`
	Mode      string        `json:"mode"`
	Backend   string        `json:"backend,omitempty"`   // of iptables
	Scheduler string        `json:"scheduler,omitempty"` // of ipvs and userspace
	TTL       time.Duration `json:"ttl"`
	// DryRun only says what would be done.
	DryRun bool `json:"dryRun,omitempty"`
}

// MaxTTL is the longest that a path may stay: it is for an incident.
const MaxTTL = 24 * time.Hour

// check says what is wrong with a request.
func (r *Request) check() error {
	if r.Plan == nil {
		return errors.New("there is no plan")
	}
	if err := r.Plan.Check(); err != nil {
		return err
	}
	switch {
	case r.Mode == IPTables && r.Backend != BackendNFT && r.Backend != BackendLegacy:
		return fmt.Errorf("%q is no backend of iptables: %s and %s are", r.Backend, BackendNFT, BackendLegacy)
	case r.TTL < time.Second || r.TTL > MaxTTL:
		return fmt.Errorf("a time of %v: it may be 1s to %v", r.TTL, MaxTTL)
	}
	return nil
}

// What became of a request.
const (
	Programmed = "programmed"
	Updated    = "updated"   // the same plan was there in another state
	Unchanged  = "unchanged" // it was there just so
	Planned    = "planned"   // a dry run
)

// Result is what was done.
type Result struct {
	What    string    `json:"what"`
	Plan    string    `json:"plan"` // its name
	Mode    string    `json:"mode"`
	Expires time.Time `json:"expires,omitzero"`
	By      string    `json:"by,omitempty"` // whose it is, where it was there
	// Commands are what was run, or would be.
	Commands []Command `json:"commands,omitempty"`
	// Added and Removed are lines of the save files, with an address in front: what a diff of before and after shows.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
}

// Command is a program and what it reads.
type Command struct {
	Line  string `json:"line"`
	Input string `json:"input,omitempty"`
}

// Refusal is why a request is not done, in one sentence: it would not be safe.
type Refusal string

func (r Refusal) Error() string { return string(r) }
