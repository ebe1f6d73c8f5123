// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	Holder  Process   `json:"holder"`
	// Expirer is the process that undoes the record at its time if the holder is gone; nil: none was started.
	Expirer *Process `json:"expirer,omitempty"`
	Before  Before   `json:"before"`

	Plan plan.Plan `json:"plan"`
	// Earlier is the state of the plan that an update replaces, while it does.
	Earlier *plan.Plan `json:"earlier,omitempty"`
	// Complete says that the whole plan was programmed. Until then it is unknown how much of it.
	Complete bool `json:"complete,omitempty"`
}

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

// newRecord begins the name of a record that is being written.
const newRecord = ".new-"

// journal keeps the records of one network namespace.
type journal struct{ dir string }

// write keeps a record, and returns when it is on its medium.
func (j journal) write(r *Record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(j.dir, newRecord)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), j.path(r.Plan.Name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return j.sync()
}

func (j journal) path(name string) string { return filepath.Join(j.dir, name+".json") }

func (j journal) sync() error {
	d, err := os.Open(j.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// remove removes a record.
func (j journal) remove(name string) error {
	err := os.Remove(j.path(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return j.sync()
}

// list returns all records that can be read. The error is that of all others.
func (j journal) list() (records []*Record, err error) {
	entries, err := os.ReadDir(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		r, err := j.read(filepath.Join(j.dir, e.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		records = append(records, r)
	}
	return records, errors.Join(errs...)
}

// others returns the records of other plans in the modes for which is true.
func (j journal) others(r *Record, is func(*Record) bool) ([]*Record, error) {
	all, err := j.list()
	return slices.DeleteFunc(all, func(o *Record) bool { return o.Plan.Name == r.Plan.Name || !is(o) }), err
}

func (j journal) read(path string) (*Record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("the journal %s cannot be read: %w", path, err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("the journal %s is of version %d, and this program knows %d: "+
			"undo it with the version that wrote it", path, r.Version, recordVersion)
	}
	if err := r.Plan.Check(); err != nil {
		return nil, fmt.Errorf("the journal %s: %w", path, err)
	}
	return &r, nil
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
