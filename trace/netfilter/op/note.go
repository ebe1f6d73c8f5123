// SPDX-License-Identifier: Apache-2.0

package op

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Note adds a word to Packet.Recent, and takes another one away.
func Note(p *netfilter.Packet, add, remove string) {
	if Noted(p, remove) {
		p.Recent = strings.Replace(" "+p.Recent, " "+remove+" ", " ", 1)[1:]
	}
	if !Noted(p, add) {
		p.Recent += add + " "
	}
}

// Noted tells whether a word is in Packet.Recent. Besides the names of lists that a rule has put the source into
// there are those of lists that it was taken out of ("!NAME"), and of sets that a rule has changed ("set:NAME").
func Noted(p *netfilter.Packet, word string) bool {
	rest := p.Recent
	for rest != "" {
		var w string
		if w, rest, _ = strings.Cut(rest, " "); w == word {
			return true
		}
	}
	return false
}

// Changed tells whether a rule has changed a list or a set in a manner that the walk does not follow.
func Changed(p *netfilter.Packet, list string) bool { return p.Recent != "" && Noted(p, "set:"+list) }
