// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What outlives its record in the journal: rules that were saved while a path was programmed and restored after its
// end, or after the node was started anew. It is found by names. What has such a name, and holds what this package
// never writes, may be somebody else's.

// orphan is something on the node without a record.
type orphan struct {
	wire.Orphan

	remove func(ctx context.Context) error
}

// Orphans lists what is on the node of the names that this package gives, and has no record. remove are the IDs of
// those that are removed; what may be somebody else's only with foreign. It returns those that are there, or were, each
// with what became of it.
func (p *Programmer) Orphans(ctx context.Context, remove []string, foreign bool) (*wire.Orphans, error) {
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	records, err := listing(p.journal.dir)
	if err != nil {
		return nil, fmt.Errorf("the journal: %w", err)
	}
	out := &wire.Orphans{Found: []wire.Orphan{}}
	// Rules come first: what they lead to has to be there as long as they do.
	for _, find := range []func(context.Context, *snapshot.Journal) ([]*orphan, error){
		p.orphanChains, p.orphanTables, p.orphanDevice,
	} {
		list, err := find(ctx, records)
		if err != nil {
			out.Unread = append(out.Unread, err.Error())
		}
		for _, o := range list {
			if slices.Contains(remove, o.ID) {
				o.settle(ctx, foreign)
			}
			out.Found = append(out.Found, o.Orphan)
		}
	}
	return out, nil
}

// settle removes an orphan, and notes what became of it.
func (o *orphan) settle(ctx context.Context, foreign bool) {
	if len(o.Foreign) > 0 && !foreign {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := o.remove(ctx); err != nil {
		o.Failed = err.Error()
		return
	}
	o.Removed = true
}

// maxForeign is how many reasons are named for which something may be somebody else's.
const maxForeign = 5

// doubt adds a reason why an orphan may be somebody else's.
func (o *orphan) doubt(format string, args ...any) {
	if len(o.Foreign) == maxForeign {
		o.Foreign = append(o.Foreign, "and more")
	}
	if len(o.Foreign) < maxForeign {
		o.Foreign = append(o.Foreign, fmt.Sprintf(format, args...))
	}
}
