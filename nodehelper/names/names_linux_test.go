// SPDX-License-Identifier: Apache-2.0

package names

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

var (
	podAt   = netip.MustParseAddr("192.0.2.9")
	address = netip.MustParseAddr("10.96.0.7")
)

// answerTo answers a query as the first label of its name says; several packets are sent one after the other.
func answerTo(t *testing.T, query []byte) (packets [][]byte) {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 || !m.RecursionDesired {
		t.Errorf("a query that is none: %v %+v", err, m)
		return nil
	}
	m.Response = true
	q := m.Questions[0]
	header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
	a := dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: address.As4()}}
	pack := func() []byte {
		data, err := m.Pack()
		if err != nil {
			t.Error(err)
		}
		return data
	}
	word, _, _ := strings.Cut(q.Name.String(), ".")
	switch word {
	case "web":
		m.Answers = []dnsmessage.Resource{a}
	case "alias":
		m.Answers = []dnsmessage.Resource{
			{Header: header, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("db.example.org.")}}, a,
		}
	case "nobody":
		m.RCode = dnsmessage.RCodeNameError
	case "fails":
		m.RCode = dnsmessage.RCodeServerFailure
	case "forged": // packets of others come first
		m.Answers = []dnsmessage.Resource{a}
		right := pack()
		m.Answers = nil
		m.ID++
		other := pack()
		return [][]byte{[]byte("x"), other, right}
	case "garbled":
		m.Answers = []dnsmessage.Resource{a}
		return [][]byte{pack()[:len(query)+3]}
	case "many":
		for range maxRecords + 1 {
			m.Answers = append(m.Answers, a)
		}
		return [][]byte{pack()}
	case "silent":
		return nil
	}
	return [][]byte{pack()}
}

// serveNames serves DNS in a namespace that has the pod's address.
func serveNames(t *testing.T) netip.AddrPort {
	t.Helper()
	ns := testutil.NewNamespace(t)
	ns.Run(t, "ip", "link", "set", "lo", "up")
	ns.Run(t, "ip", "addr", "add", podAt.String()+"/32", "dev", "lo")
	at := netip.AddrPortFrom(podAt, 53)
	var l net.Listener
	var u net.PacketConn
	var err, err2 error
	testutil.NewThread(t, ns.Path).Do(func() {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", at.String())
		u, err2 = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", at.String())
	})
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	t.Cleanup(func() { u.Close() })
	testutil.Serve(t, l, func(c net.Conn) {
		var head [2]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(head[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		for _, p := range answerTo(t, query) {
			_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...))
		}
	})
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			for _, p := range answerTo(t, buf[:n]) {
				_, _ = u.WriteTo(p, from)
			}
		}
	}()
	return at
}

// Servers are asked from the pod's network namespace; packets that are no answer are passed over, and what cannot be
// read is an error of that question alone.
func TestAsk(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "ip", "nsenter") {
		return
	}
	at := serveNames(t)
	closed := netip.AddrPortFrom(podAt, 54)
	var questions []snapshot.NameQuestion
	var want []snapshot.NameAnswer
	for _, c := range []struct {
		name  string
		tcp   bool
		at    netip.AddrPort
		code  string
		alias string
		some  bool
		fails string // a part of the error
	}{
		{name: "web", code: "NOERROR", some: true},
		{name: "web", tcp: true, code: "NOERROR", some: true},
		{name: "alias", code: "NOERROR", some: true, alias: "db.example.org"},
		{name: "nobody", code: "NXDOMAIN"},
		{name: "fails", code: "SERVFAIL"},
		{name: "forged", code: "NOERROR", some: true},
		{name: "garbled", fails: "cannot be read"},
		{name: "many", tcp: true, fails: "bytes"},
		{name: "silent", fails: "no answer in time"},
		{name: "web", at: closed, fails: "refused"},
		{name: "web", tcp: true, at: closed, fails: "refused"},
		{name: strings.Repeat("x", 300), fails: "cannot ask for"},
	} {
		q := snapshot.NameQuestion{Server: c.at, Name: c.name + ".shop.svc.cluster.local", Type: "A", TCP: c.tcp}
		if !c.at.IsValid() {
			q.Server = at
		}
		a := snapshot.NameAnswer{NameQuestion: q, Code: c.code, Alias: c.alias, Error: c.fails}
		if c.some {
			a.Addresses = []netip.Addr{address}
		}
		questions, want = append(questions, q), append(want, a)
	}
	got, err := Ask(t.Context(), podns.Pod{Addresses: []netip.Addr{podAt}}, questions)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range got.List {
		fails := want[i].Error
		want[i].Error = a.Error
		if !reflect.DeepEqual(a, want[i]) || (fails == "") != (a.Error == "") || !strings.Contains(a.Error, fails) {
			t.Errorf("%d: %+v, not %+v (%s)", i, a, want[i], fails)
		}
	}
	_, err = Ask(t.Context(), podns.Pod{Addresses: []netip.Addr{podAt}}, make([]snapshot.NameQuestion, MaxQuestions+1))
	if !bounds.Is(err) {
		t.Error(err)
	}
	_, err = Ask(t.Context(), podns.Pod{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}, questions)
	if err == nil {
		t.Error("a pod that is not there was asked from")
	}
}

// Any bytes are either an answer to the question, or refused.
func FuzzRead(f *testing.F) {
	q := dnsmessage.Question{
		Name: dnsmessage.MustNewName("web.shop."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 1, Response: true}, Questions: []dnsmessage.Question{q}}
	data, err := m.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var a snapshot.NameAnswer
		if err := read(data, q, 1, &a); err == nil && (a.Code == "" || len(a.Addresses) > maxRecords) {
			t.Errorf("%+v", a)
		}
	})
}
