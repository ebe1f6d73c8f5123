// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The modes that a path can be programmed in.
const (
	IPTables  = "iptables"
	NFTables  = "nftables"
	IPVS      = "ipvs"
	Userspace = "userspace"
)

// Modes are all of them.
var Modes = []string{IPTables, NFTables, IPVS, Userspace}

// Schedulers are what a mode can share connections out by, the default first; a mode that is not there knows equal
// shares alone.
var Schedulers = map[string][]string{
	IPVS:      {"rr", "wrr", "lc", "wlc", "sh", "dh", "sed", "nq"},
	Userspace: {"rr", "lc", "sh"},
}

// The backends of iptables.
const (
	BackendNFT    = "nft"
	BackendLegacy = "legacy"
)

// ProgramParams say what to program, and how.
type ProgramParams struct {
	// Plan is what to program, as JSON. The two ends encode and decode it (trace/plan.Plan): this package only carries
	// it.
	Plan json.RawMessage `json:"plan"`
	ProgramOptions
}

// ProgramOptions say how a plan is programmed, and for how long.
type ProgramOptions struct {
	Mode    string `json:"mode"`
	Backend string `json:"backend,omitempty"` // of iptables
	// Scheduler is one of Schedulers of the mode; "": the default.
	Scheduler string `json:"scheduler,omitempty"`
	// Log has userspace mode write a line for each connection.
	Log bool          `json:"log,omitempty"`
	TTL time.Duration `json:"ttl"`
	// DryRun only says what would be done.
	DryRun bool `json:"dryRun,omitempty"`
	// Run is the run of the plugin, By who that is, for people.
	Run string `json:"run"`
	By  string `json:"by"`
	// Follow has everything undone as the plugin goes; otherwise it stays for its time.
	Follow bool `json:"follow,omitempty"`
}

// ProgramFile is what comes of programming and undoing: a ProgramResult, or a list of Undone, as JSON.
const ProgramFile = "program.json"

// UndoParams say what to take away.
type UndoParams struct {
	// Which is UndoMine, UndoDead or UndoAll.
	Which string `json:"which"`
}

// What is taken away.
const (
	UndoMine = "mine" // what this helper holds
	UndoDead = "dead" // what helpers left that are gone
	UndoAll  = "all"  // everything
)

// Undone is what was taken away.
type Undone struct {
	Services []string `json:"services"`
	Mode     string   `json:"mode"`
	By       string   `json:"by"`
}

// MaxTTL is the longest that a path may stay: it is for an incident.
const MaxTTL = 24 * time.Hour

// NeedsBackend tells whether a mode writes rules of iptables.
func NeedsBackend(mode string) bool { return mode != NFTables }

// Check says what is wrong with the options.
func (o *ProgramOptions) Check() error {
	switch {
	case !slices.Contains(Modes, o.Mode):
		return fmt.Errorf("%q is no mode: %s are", o.Mode, strings.Join(Modes, ", "))
	case o.Scheduler != "" && !slices.Contains(Schedulers[o.Mode], o.Scheduler):
		return fmt.Errorf("%q is no scheduler of mode %s", o.Scheduler, o.Mode)
	case NeedsBackend(o.Mode) && o.Backend != BackendNFT && o.Backend != BackendLegacy:
		return fmt.Errorf("%q is no backend of iptables: %s and %s are", o.Backend, BackendNFT, BackendLegacy)
	case o.TTL < time.Second || o.TTL > MaxTTL:
		return fmt.Errorf("a time of %v: it may be 1s to %v", o.TTL, MaxTTL)
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

// ProgramResult is what was done.
type ProgramResult struct {
	What string `json:"what"`
	// Refused says, in one sentence, why nothing was done: it would not be safe.
	Refused string    `json:"refused,omitempty"`
	Plan    string    `json:"plan"` // its name
	Mode    string    `json:"mode"`
	Expires time.Time `json:"expires,omitzero"`
	By      string    `json:"by,omitempty"` // whose it is, where it was there
	// Of a dry run: Commands are what would be run.
	Commands []Command `json:"commands,omitempty"`
	// Added and Removed are lines of the save files, with the table in front: what a diff of before and after shows.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
}

// Command is a program and what it reads.
type Command struct {
	Line  string `json:"line"`
	Input string `json:"input,omitempty"`
}
