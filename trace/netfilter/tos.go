// SPDX-License-Identifier: Apache-2.0

package netfilter

// SameTOS tells whether two packets have the same TOS, as far as that is known.
func (p *Packet) SameTOS(o *Packet) bool { return p.TOS == o.TOS && p.AnyTOS == o.AnyTOS }

// KeepTOS gives a packet the TOS that it had in another network namespace, or that a tunnel gives to the outer one.
func (p *Packet) KeepTOS(was *Packet) { p.TOS, p.AnyTOS = was.TOS, was.AnyTOS }
