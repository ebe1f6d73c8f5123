// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// chainRequests are for the chains with these names in table a, which are answered by one message if there is such a
// chain.
func chainRequests(names ...string) (out []Counted) {
	for _, name := range names {
		out = append(out, Counted{
			nftables(unix.NFT_MSG_GETCHAIN, String(unix.NFTA_CHAIN_TABLE, "a"), String(unix.NFTA_CHAIN_NAME, name)), 1,
		})
	}
	return out
}

// namesIn returns the names of the chains in answers.
func namesIn(t *testing.T, answers []byte) (names []string) {
	t.Helper()
	for m, err := range Messages(answers) {
		if err != nil {
			t.Fatal(err)
		}
		_, attributes, err := m.Attributes()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range attributes {
			if a.Type == unix.NFTA_CHAIN_NAME {
				names = append(names, unix.ByteSliceToString(a.Value))
			}
		}
	}
	return names
}

func TestAppendCounted(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET) {
		return
	}
	c := dial(t)
	if err := c.Commit(newTable("a"), newChain("a", "x"), newChain("a", "y"), newChain("a", "z")); err != nil {
		t.Fatal(err)
	}
	two := chainRequests("x", "y", "z")
	two[1].Answers = 2
	for name, tt := range map[string]struct {
		requests   []Counted
		names      []string
		incomplete []int
	}{
		"none":              {},
		"all":               {chainRequests("x", "y", "z"), []string{"x", "y", "z"}, nil},
		"one is absent":     {chainRequests("x", "absent", "z"), []string{"x", "z"}, []int{1}},
		"first is absent":   {chainRequests("absent", "y"), []string{"y"}, []int{0}},
		"last is absent":    {chainRequests("x", "y", "absent"), []string{"x", "y"}, []int{2}},
		"all are absent":    {chainRequests("k", "l"), nil, []int{0, 1}},
		"too few answers":   {two, []string{"x", "z"}, []int{1}},
		"only one, present": {chainRequests("y"), []string{"y"}, nil},
	} {
		got, incomplete, err := c.AppendCounted([]byte("first"), tt.requests)
		if err != nil || string(got[:5]) != "first" {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
		if names := namesIn(t, got[5:]); !slices.Equal(names, tt.names) || !slices.Equal(incomplete, tt.incomplete) {
			t.Errorf("%s: %v, incomplete %v; want %v and %v", name, names, incomplete, tt.names, tt.incomplete)
		}
	}
}

// Answers that the kernel had to discard are an error, and not missing.
func TestAppendCountedLosesAnswers(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET) {
		return
	}
	c := dial(t)
	changes, names := []Request{newTable("a")}, []string{}
	for i := range 200 {
		names = append(names, fmt.Sprint("chain", i))
		changes = append(changes, newChain("a", names[i]))
	}
	if err := c.Commit(changes...); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReceiveBuffer(1); err != nil {
		t.Fatal(err)
	}
	if got, incomplete, err := c.AppendCounted(nil, chainRequests(names...)); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("%d bytes, incomplete %v, %v; want ENOBUFS", len(got), incomplete, err)
	}
	// The rest is passed over.
	if err := c.SetReceiveBuffer(8 << 20); err != nil {
		t.Fatal(err)
	}
	got, incomplete, err := c.AppendCounted(nil, chainRequests(names...))
	if found := namesIn(t, got); err != nil || len(incomplete) > 0 || !slices.Equal(found, names) {
		t.Errorf("afterwards: %v, incomplete %v, %v", found, incomplete, err)
	}
}

// BenchmarkReceive compares the receiving here with that of the library, for 500 answers of one datagram each: see the
// package's comment.
func BenchmarkReceive(b *testing.B) {
	if err := inNewNamespace(b); err != nil {
		b.Skip(err)
	}
	const chains = 500
	changes, names := []Request{newTable("a")}, []string{}
	for i := range chains {
		names = append(names, fmt.Sprint("chain", i))
		changes = append(changes, newChain("a", names[i]))
	}
	c := dial(b)
	if err := errors.Join(c.SetReceiveBuffer(8<<20), c.Commit(changes...)); err != nil {
		b.Fatal(err)
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{MessageBufferSize: maxDatagram})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadBuffer(8 << 20); err != nil {
		b.Fatal(err)
	}
	requests := chainRequests(names...)
	b.Run("here", func(b *testing.B) {
		b.ReportAllocs()
		var out []byte
		for b.Loop() {
			var incomplete []int
			var err error
			if out, incomplete, err = c.AppendCounted(out[:0], requests); err != nil || len(incomplete) > 0 {
				b.Fatal(incomplete, err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		var out []byte
		for b.Loop() {
			out = out[:0]
			messages := make([]netlink.Message, chains)
			for i := range messages {
				if messages[i], err = requests[i].message(); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := conn.SendMessages(messages); err != nil {
				b.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
				b.Fatal(err)
			}
			for range chains {
				for m, err := range conn.ReceiveIter() {
					if err != nil {
						b.Fatal(err)
					}
					raw, err := m.MarshalBinary()
					if err != nil {
						b.Fatal(err)
					}
					out = append(out, raw...)
				}
			}
		}
	})
}
