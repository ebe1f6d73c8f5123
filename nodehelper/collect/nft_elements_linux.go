// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/nfmessages"
)

const (
	// maxSockets is how many sockets are used side by side at most. For each request for elements the kernel iterates
	// over all sets of the table, three times for all elements and once for single ones (nf_tables_dump_set,
	// nf_tables_getsetelem), which takes most of the time: kube-proxy has an anonymous map in the rule of each Service.
	maxSockets = 8
	// queriesAtOnce is how many queries a socket takes from the list at once.
	queriesAtOnce = 32
	// maxKeys is how many elements of one set are requested by their keys at most; maxKeysAtOnce is how many of all
	// sets are requested at once. The kernel answers with a message for each, and all of them wait in the socket.
	maxKeys, maxKeysAtOnce = 64, 512
	// keysBuffer is the receive buffer for these messages, in bytes.
	keysBuffer = 8 << 20
	// bytesPerElement is about how large an answer is for one element.
	bytesPerElement = 192
	// spareBytes is added to the expected size of answers, so that they need not be copied to a larger buffer at the
	// end.
	spareBytes = 256 << 10
)

// appendAll requests all queries side by side, on several sockets, and appends the answers to first. Which answer is in
// which part is random; there is one part at least.
func appendAll(first []byte, queries []query) (parts [][]byte, err error) {
	elements := 0
	for i := range queries {
		elements += queries[i].keys
	}
	parts = make([][]byte, max(1, min(maxSockets, runtime.NumCPU(), (len(queries)+queriesAtOnce-1)/queriesAtOnce)))
	parts[0] = append(make([]byte, 0, len(first)+elements*bytesPerElement+spareBytes), first...)
	for i := range parts[1:] {
		parts[i+1] = make([]byte, 0, elements*bytesPerElement/len(parts)+spareBytes)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	errs := make([]error, len(parts))
	for i := range parts {
		// Here, as a goroutine's thread may be in another network namespace.
		conn, err := netlink.Dial()
		if err != nil {
			next.Store(int64(len(queries)))
			return nil, err
		}
		wg.Go(func() {
			defer conn.Close()
			byKey := conn.SetReceiveBuffer(keysBuffer) == nil
			for errs[i] == nil {
				n := int(next.Add(queriesAtOnce)) - queriesAtOnce
				if n >= len(queries) {
					return
				}
				parts[i], errs[i] = appendQueries(conn, parts[i], queries[n:min(n+queriesAtOnce, len(queries))], byKey)
			}
			next.Store(int64(len(queries))) // an error: nobody needs the other answers
		})
	}
	wg.Wait()
	return parts, errors.Join(errs...)
}

// appendQueries requests some queries, and appends the answers: elements by their keys, if byKey is true, and
// everything else one query after the other.
func appendQueries(conn *netlink.Conn, out []byte, queries []query, byKey bool) ([]byte, error) {
	var batch []query
	keys := 0
	var err error
	for _, q := range queries {
		if !byKey || q.keys == 0 {
			if out, err = appendDump(conn, out, q.Request); err != nil {
				return out, err
			}
			continue
		}
		if keys+q.keys > maxKeysAtOnce {
			if out, err = appendByKey(conn, out, batch); err != nil {
				return out, err
			}
			batch, keys = nil, 0
		}
		batch, keys = append(batch, q), keys+q.keys
	}
	return appendByKey(conn, out, batch)
}

// appendByKey requests elements by their keys, and all elements of the sets that lack one of them.
func appendByKey(conn *netlink.Conn, out []byte, queries []query) ([]byte, error) {
	out, incomplete, err := countedElements(conn, out, queries)
	if err != nil {
		return out, err
	}
	for _, i := range incomplete {
		if out, err = appendDump(conn, out, queries[i].Request); err != nil {
			return out, err
		}
	}
	return out, nil
}

// countedElements requests elements by their keys, and appends the answers. incomplete are the indices of the sets that
// lack one of them, for which nothing is appended.
func countedElements(conn *netlink.Conn, out []byte, queries []query) (all []byte, incomplete []int, err error) {
	requests := make([]netlink.Counted, len(queries))
	for i, q := range queries {
		r := q.Request
		r.Attributes = append(slices.Clip(r.Attributes), q.elements)
		requests[i] = netlink.Counted{Request: r, Answers: q.keys}
	}
	if all, incomplete, err = conn.AppendCounted(out, requests); err != nil {
		return all, nil, fmt.Errorf("nf_tables: %w", err)
	}
	return all, incomplete, keepAnswers(all[len(out):], queries, incomplete)
}

// keepAnswers has each query keep its answers, of which as many messages were appended as it has keys; none of those
// that are incomplete.
func keepAnswers(answers []byte, queries []query, incomplete []int) error {
	at := 0
	next := func() { // the query whose answers follow
		for slices.Contains(incomplete, at) {
			at++
		}
	}
	next()
	begin, end, count := 0, 0, 0
	for m, err := range netlink.Messages(answers) {
		if err != nil {
			return err
		}
		end += m.Size()
		count++
		if count < queries[at].keys {
			continue
		}
		if to := queries[at].answer; to != nil {
			*to = slices.Clone(answers[begin:end])
		}
		begin, count = end, 0
		at++
		next()
	}
	return nil
}

// elementQueries makes queries for elements of sets.
type elementQueries struct {
	// keys are the attributes that restrict a query to elements with the keys 0 to n-1, by n. Thousands of queries
	// share them: to encode them for each took 2 % of the processor time of reading all rules.
	keys map[int]netlink.Attribute
}

// query returns the query for all elements of a set.
func (e *elementQueries) query(family uint8, table string, set nfmessages.OutlineSet) (query, error) {
	q := query{
		Request: request(unix.NFT_MSG_GETSETELEM, family,
			netlink.String(unix.NFTA_SET_ELEM_LIST_TABLE, table),
			netlink.String(unix.NFTA_SET_ELEM_LIST_SET, set.Name)),
	}
	if set.Counted == 0 || set.Counted > maxKeys {
		return q, nil
	}
	q.keys = set.Counted
	if _, ok := e.keys[q.keys]; !ok {
		a, err := elementKeys(q.keys)
		if err != nil {
			return query{}, err
		}
		if e.keys == nil {
			e.keys = map[int]netlink.Attribute{}
		}
		e.keys[q.keys] = a
	}
	q.elements = e.keys[q.keys]
	return q, nil
}

// elementKeys returns the attribute for the elements with the keys 0 to n-1, numbers of 32 bits in the machine's byte
// order (nf_tables_getsetelem in net/netfilter/nf_tables_api.c). It is encoded.
func elementKeys(n int) (netlink.Attribute, error) {
	elements := make([]netlink.Attribute, n)
	for k := range elements {
		key := binary.NativeEndian.AppendUint32(nil, uint32(k))
		elements[k] = netlink.Nested(unix.NFTA_LIST_ELEM,
			netlink.Nested(unix.NFTA_SET_ELEM_KEY, netlink.Bytes(unix.NFTA_DATA_VALUE, key)))
	}
	value, err := netlink.Encode(elements)
	return netlink.Bytes(unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, value), err
}
