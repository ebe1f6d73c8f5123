// SPDX-License-Identifier: Apache-2.0

package watch

// deafness notices a socket that receives no notifications of nf_tables though its rules change: each change makes
// another generation, and is announced (nf_tables_commit, nf_tables_gen_notify in net/netfilter/nf_tables_api.c).
type deafness struct {
	generation uint32
	known      bool // generation is that of a moment up to which all was announced
	told       bool // something was announced since then
	suspected  bool // nothing was, and there is another one
}

// hears notes a notification.
func (d *deafness) hears() { d.told = true }

// deaf takes the generation at a moment at which no notification waits. It tells whether there was another one at the
// moment before, and nothing has been announced since: the kernel makes it known before it announces it.
func (d *deafness) deaf(generation uint32) bool {
	switch {
	case !d.known || d.told || generation == d.generation:
		*d = deafness{generation: generation, known: true}
		return false
	case d.suspected:
		return true
	}
	d.suspected = true
	return false
}
