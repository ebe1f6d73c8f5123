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

// Modes are all modes.
var Modes = []string{IPTables, NFTables, IPVS, Userspace}

// Schedulers are the schedulers of each mode, the default first. Modes that are not contained give all endpoints equal
// shares.
var Schedulers = map[string][]string{
	IPVS:      {"rr", "wrr", "lc", "wlc", "sh", "dh", "sed", "nq"},
	Userspace: {"rr", "lc", "sh"},
}

// The backends of iptables.
const (
	BackendNFT    = "nft"
	BackendLegacy = "legacy"
)

// ProgramParams are the parameters of [MethodProgram].
type ProgramParams struct {
	// Plan is a trace/plan.Plan as JSON. The plugin encodes and the helper decodes it; this package does not know its
	// type.
	Plan json.RawMessage `json:"plan"`
	// Facts is a trace/plan.Facts as JSON: what the plugin knows of the cluster's addresses. The helper adds what it finds
	// out itself.
	Facts json.RawMessage `json:"facts,omitempty"`
	ProgramOptions
}

// ProgramOptions are how a plan is programmed, and for how long.
type ProgramOptions struct {
	Mode    string `json:"mode"`
	Backend string `json:"backend,omitempty"` // of iptables
	// Scheduler is one of Schedulers of the mode; "": the default.
	Scheduler string `json:"scheduler,omitempty"`
	// Log has userspace mode write a line for each connection.
	Log bool          `json:"log,omitempty"`
	TTL time.Duration `json:"ttl"`
	// DryRun only reports what would be done; nothing is changed.
	DryRun bool `json:"dryRun,omitempty"`
	// Run is the id of the plugin's run, By the name of its user, for people.
	Run string `json:"run"`
	By  string `json:"by"`
	// Allow are the classes of addresses that the plan may have although they are dangerous (trace/plan.Class).
	Allow []string `json:"allow,omitempty"`
	// Follow has the plan undone when the plugin ends; otherwise it stays until TTL has passed.
	Follow bool `json:"follow,omitempty"`
}

// ProgramFile is the file of the answers to [MethodProgram] and [MethodUndo]: a ProgramResult, or a list of Undone, as
// JSON.
const ProgramFile = "program.json"

// UndoParams are the parameters of [MethodUndo].
type UndoParams struct {
	// Which is UndoMine, UndoDead or UndoAll.
	Which string `json:"which"`
}

// The values of UndoParams.Which.
const (
	UndoMine = "mine" // what this helper holds
	UndoDead = "dead" // what helpers left that are gone
	UndoAll  = "all"  // everything
)

// Undone is a plan that was undone.
type Undone struct {
	Services []string `json:"services"`
	Mode     string   `json:"mode"`
	By       string   `json:"by"`
	// Left are sentences about what stays on the node, as it is not the plan's (any more).
	Left []string `json:"left,omitempty"`
}

// OrphansParams are the parameters of [MethodOrphans].
type OrphansParams struct {
	// Remove are the IDs of those that are removed; none: they are only listed.
	Remove []string `json:"remove,omitempty"`
	// Foreign removes also what may be somebody else's.
	Foreign bool `json:"foreign,omitempty"`
}

// Orphans is the answer to [MethodOrphans].
type Orphans struct {
	Found []Orphan `json:"found"`
	// Unread are sentences about what could not be looked at.
	Unread []string `json:"unread,omitempty"`
}

// Orphan is something on a node of a name that program gives, without a record in the journal.
type Orphan struct {
	ID   string `json:"id"`   // tells it from others of the node
	What string `json:"what"` // for people
	// Foreign are the reasons why it may be somebody else's: what program never writes.
	Foreign []string `json:"foreign,omitempty"`
	Removed bool     `json:"removed,omitempty"`
	Failed  string   `json:"failed,omitempty"` // why it could not be removed
}

// MaxTTL is the longest time that a path may stay: it is meant for incidents.
const MaxTTL = 24 * time.Hour

// NeedsBackend tells whether a mode writes rules of iptables.
func NeedsBackend(mode string) bool { return mode != NFTables }

// Check returns an error if the options are not valid.
func (o *ProgramOptions) Check() error {
	switch {
	case !slices.Contains(Modes, o.Mode):
		return fmt.Errorf("%q is not a mode: use one of %s", o.Mode, strings.Join(Modes, ", "))
	case o.Scheduler != "" && !slices.Contains(Schedulers[o.Mode], o.Scheduler):
		return fmt.Errorf("%q is not a scheduler of mode %s", o.Scheduler, o.Mode)
	case NeedsBackend(o.Mode) && o.Backend != BackendNFT && o.Backend != BackendLegacy:
		return fmt.Errorf("%q is not a backend of iptables: use %s or %s", o.Backend, BackendNFT, BackendLegacy)
	case o.TTL < time.Second || o.TTL > MaxTTL:
		return fmt.Errorf("a time of %v: it may be 1s to %v", o.TTL, MaxTTL)
	}
	return nil
}

// The values of ProgramResult.What.
const (
	Programmed = "programmed"
	Updated    = "updated"   // the same plan was there in another state
	Unchanged  = "unchanged" // it was there just so
	Planned    = "planned"   // a dry run
)

// ProgramResult is the answer to [MethodProgram].
type ProgramResult struct {
	What string `json:"what"`
	// Refused is the reason, in one sentence, why nothing was done: it would not be safe.
	Refused string    `json:"refused,omitempty"`
	Plan    string    `json:"plan"` // its name
	Mode    string    `json:"mode"`
	Expires time.Time `json:"expires,omitzero"`
	By      string    `json:"by,omitempty"` // whose it is, where it was there
	// Notes are sentences about what else was found or left on the node.
	Notes []string `json:"notes,omitempty"`
	// Of a dry run: Commands are what would be run.
	Commands []Command `json:"commands,omitempty"`
	// Added and Removed are lines of the save files, with the table in front: what a diff of before and after shows.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
}

// Command is a command line and its standard input.
type Command struct {
	Line  string `json:"line"`
	Input string `json:"input,omitempty"`
}
