// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// unreadFiles are the files of a node that could not be read, but for those that an agent does not try to read.
func unreadFiles(s *nodestate.State) []string {
	var out []string
	for _, f := range s.UnreadFiles() {
		if f != snapshot.ConntrackFile {
			out = append(out, f)
		}
	}
	return out
}

// filesOfTheNode are those that a pass reads, in the log.
const filesOfTheNode = "files of the node"

// noteUnread logs once what a pass could not read, and notes how many passes in a row have read less than all.
func (a *Agent) noteUnread(s *nodestate.State) {
	unread := unreadFiles(s)
	if len(unread) == 0 {
		a.partial = 0
		a.ended(filesOfTheNode)
		return
	}
	a.partial++
	reasons := make([]string, len(unread))
	for i, f := range unread {
		reasons[i] = fmt.Sprintf("%s: %s", f, s.Unread(f))
	}
	a.sayOf(filesOfTheNode, strings.Join(unread, " "), errors.New("not read: "+strings.Join(reasons, "; ")))
}

// untilNext is the time from a pass to the next one where nothing changes. What could not be read may be readable in a
// moment, without that anything announces it; what never can is tried ever more rarely.
func (a *Agent) untilNext() time.Duration {
	pause := a.Full
	if a.partial > 0 {
		pause = failurePause << min(a.partial-1, 10)
	}
	return jittered(min(pause, a.Full))
}
