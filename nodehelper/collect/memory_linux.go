// SPDX-License-Identifier: Apache-2.0

package collect

// answer appends to out what is known of the answers to queries, and returns the queries that are left. kept are the
// sets whose answers were appended. Of nil nothing is known.
func (m *Memory) answer(out []byte, queries []query) (answers []byte, left []query, kept map[setName][]byte) {
	if m == nil {
		return out, queries, nil
	}
	kept = make(map[setName][]byte, len(m.sets))
	left = make([]query, 0, len(queries))
	size, all := 0, [][]byte(nil)
	for _, q := range queries {
		known, ok := []byte(nil), false
		if q.answer != nil {
			known, ok = m.sets[q.set]
		}
		if !ok {
			left = append(left, q)
			continue
		}
		kept[q.set] = known
		size, all = size+len(known), append(all, known)
	}
	answers = append(make([]byte, 0, len(out)+size), out...)
	for _, known := range all {
		answers = append(answers, known...)
	}
	return answers, left, kept
}

// remember takes the answers that were kept, and those to the queries that were left. Sets that are gone are forgotten.
func (m *Memory) remember(kept map[setName][]byte, queries []query) {
	if m == nil {
		return
	}
	for _, q := range queries {
		if q.answer != nil && *q.answer != nil {
			kept[q.set] = *q.answer
		}
	}
	m.sets = kept
}
