// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// leftOver is what nodes have of program's without a record in their journals.
type leftOver struct {
	config *cleanupConfig
	nodes  []string
	found  []*wire.Orphans // by node; nil: it was not looked at
}

// look lists what is left over on a node.
func (l *leftOver) look(ctx context.Context, i int, helper *launch.Helper) (err error) {
	l.found[i], err = helper.Orphans(ctx, wire.OrphansParams{})
	return err
}

// removable tells whether something is removed once that is confirmed.
func (l *leftOver) removable(o *wire.Orphan) bool { return len(o.Foreign) == 0 || l.config.foreign }

// remove names what is left over, asks, and removes it. What may be somebody else's stays, unless it is asked for; the
// exit code then is that of a warning.
func (l *leftOver) remove(ctx context.Context, env *environment, s *run.Session) error {
	var errs []error
	var todo []string // nodes with something to remove
	stays := 0
	ids := map[string][]string{}
	for i, found := range l.found {
		if found == nil {
			continue
		}
		node := l.nodes[i]
		for _, why := range found.Unread {
			errs = append(errs, fmt.Errorf("node %s: %s", node, safetext.Line(why, 1000)))
		}
		for n := range found.Found {
			o := &found.Found[n]
			env.out.Line("%s", l.describe(node, o))
			if !l.removable(o) {
				stays++
				continue
			}
			if ids[node] == nil {
				todo = append(todo, node)
			}
			ids[node] = append(ids[node], o.ID)
		}
	}
	if len(todo) > 0 {
		errs = append(errs, l.removeOn(ctx, env, s, todo, ids))
	}
	if err := errors.Join(errs...); err != nil {
		if _, ok := errors.AsType[*run.ExitError](err); ok {
			return err
		}
		return run.NotInspected(err)
	}
	if stays > 0 {
		return &run.ExitError{Code: run.ExitWarning}
	}
	return nil
}

// describe is a line about something that is left over.
func (l *leftOver) describe(node string, o *wire.Orphan) string {
	text := fmt.Sprintf("node/%s: without a record: %s", node, safetext.Line(o.What, 500))
	if len(o.Foreign) == 0 {
		return text
	}
	text += "; it may be someone else's: " + safetext.Line(strings.Join(o.Foreign, ", "), 500)
	if !l.removable(o) {
		text += "; it stays (--foreign removes it)"
	}
	return text
}

// removeOn asks, and removes from the nodes what has the IDs.
func (l *leftOver) removeOn(
	ctx context.Context, env *environment, s *run.Session, nodes []string, ids map[string][]string,
) error {
	err := confirm(env, l.config.yes,
		"cleanup asks before it removes rules without a record: give --yes where there is no "+
			"terminal", func() []string { return nil }, "Remove what has no record?")
	if err != nil {
		return err
	}
	said := make([][]string, len(nodes))
	failed := s.EachHelper(ctx, nodes, func(i int, node string, helper *launch.Helper) error {
		got, err := helper.Orphans(ctx, wire.OrphansParams{Remove: ids[node], Foreign: l.config.foreign})
		if err == nil {
			said[i], err = removed(node, got, ids[node])
		}
		return errors.Join(err, helper.Close())
	})
	for _, line := range slices.Concat(said...) {
		env.out.Line("%s", line)
	}
	return errors.Join(failed...)
}

// removed says, in lines, what became of what was to be removed. The error names what stays of that.
func removed(node string, got *wire.Orphans, ids []string) (said []string, err error) {
	var errs []error
	for i := range got.Found {
		switch o := &got.Found[i]; {
		case o.Removed:
			said = append(said, fmt.Sprintf("node/%s: removed: %s", node, safetext.Line(o.What, 500)))
		case o.Failed != "":
			errs = append(errs, fmt.Errorf("node %s: could not remove %s: %s", node, safetext.Line(o.What, 500),
				safetext.Line(o.Failed, 1000)))
		case slices.Contains(ids, o.ID):
			errs = append(errs, fmt.Errorf("node %s: %s stays: others have changed it since it was listed: %s", node,
				safetext.Line(o.What, 500), safetext.Line(strings.Join(o.Foreign, ", "), 500)))
		}
	}
	return said, errors.Join(errs...)
}
