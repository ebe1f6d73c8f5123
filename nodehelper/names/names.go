// SPDX-License-Identifier: Apache-2.0

// Package names asks name servers from a pod's network namespace, as the pod's own resolver would: UDP, or TCP. It is
// bounded in queries, time and bytes, and what servers answer is not trusted.
package names

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Limits of a run, whatever is asked for.
const (
	MaxQuestions = 32
	patience     = 1500 * time.Millisecond // for one answer
	tries        = 2                       // over UDP
	maxMessage   = 4096                    // bytes of an answer that are read
	maxStray     = 16                      // packets that are no answer to the question
	maxRecords   = 256                     // of an answer
)

// Ask asks in the network namespace of a pod, all questions at once, and returns the answers in their order.
func Ask(ctx context.Context, pod podns.Pod, questions []snapshot.NameQuestion) (*snapshot.NameAnswers, error) {
	if len(questions) > MaxQuestions {
		return nil, bounds.Errorf("%d name queries: at most %d were expected", len(questions), MaxQuestions)
	}
	out := &snapshot.NameAnswers{List: make([]snapshot.NameAnswer, len(questions))}
	conns := make([]net.Conn, len(questions))
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	// A socket stays in the namespace that it was made in.
	err := within(pod, func() error {
		for i, q := range questions {
			out.List[i].NameQuestion = q
			var err error
			if conns[i], err = dial(ctx, q); err != nil {
				out.List[i].Error = reason(err)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	for i := range questions {
		if conns[i] != nil {
			wg.Go(func() { ask(ctx, conns[i], &out.List[i]) })
		}
	}
	wg.Wait()
	return out, ctx.Err()
}

func dial(ctx context.Context, q snapshot.NameQuestion) (net.Conn, error) {
	network := "udp"
	if q.TCP {
		network = "tcp"
	}
	if !q.Server.IsValid() || q.Server.Port() == 0 {
		return nil, fmt.Errorf("%s is not an address and port to ask", q.Server)
	}
	return (&net.Dialer{Timeout: patience}).DialContext(ctx, network, q.Server.String())
}

// reason is an error without the addresses that the question has.
func reason(err error) string {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "no answer in time"
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}
	return err.Error()
}

// ask asks a question, over UDP again where no answer comes.
func ask(ctx context.Context, c net.Conn, a *snapshot.NameAnswer) {
	var id [2]byte
	_, _ = rand.Read(id[:]) // it does not fail
	question, query, err := queryOf(binary.BigEndian.Uint16(id[:]), a.NameQuestion)
	if err != nil {
		a.Error = reason(err)
		return
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	for range tries {
		if err = c.SetDeadline(time.Now().Add(patience)); err != nil {
			break
		}
		if a.TCP {
			err = overTCP(c, query, question, binary.BigEndian.Uint16(id[:]), a)
			break
		}
		if err = overUDP(c, query, question, binary.BigEndian.Uint16(id[:]), a); err == nil {
			break
		}
	}
	if err != nil {
		a.Error = reason(err)
	}
}

// types are those of records that can be asked for.
var types = map[string]dnsmessage.Type{"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA}

func queryOf(id uint16, q snapshot.NameQuestion) (dnsmessage.Question, []byte, error) {
	name, err := dnsmessage.NewName(q.Name + ".")
	if err != nil {
		return dnsmessage.Question{}, nil, fmt.Errorf("cannot ask for %.100q: %w", q.Name, err)
	}
	t, ok := types[q.Type]
	if !ok {
		return dnsmessage.Question{}, nil, fmt.Errorf("cannot ask for records of type %.10q", q.Type)
	}
	question := dnsmessage.Question{Name: name, Type: t, Class: dnsmessage.ClassINET}
	m := dnsmessage.Message{
		Header: dnsmessage.Header{ID: id, RecursionDesired: true}, Questions: []dnsmessage.Question{question},
	}
	data, err := m.Pack()
	return question, data, err
}

func overUDP(c net.Conn, query []byte, q dnsmessage.Question, id uint16, a *snapshot.NameAnswer) error {
	if _, err := c.Write(query); err != nil {
		return err
	}
	buf := make([]byte, maxMessage)
	for range maxStray {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		if err = read(buf[:n], q, id, a); !errors.Is(err, errStray) {
			return err
		}
	}
	return errStray
}

func overTCP(c net.Conn, query []byte, q dnsmessage.Question, id uint16, a *snapshot.NameAnswer) error {
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...) //nolint:gosec // a short one
	if _, err := c.Write(framed); err != nil {
		return err
	}
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n > maxMessage {
		return bounds.Errorf("the answer has %d bytes: at most %d are read", n, maxMessage)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(c, data); err != nil {
		return err
	}
	return read(data, q, id, a)
}

// errStray says that a packet is no answer to the question.
var errStray = errors.New("the response is not an answer to the query")

// codes are the names of answers' codes (RFC 1035, 4.1.1).
var codes = map[dnsmessage.RCode]string{
	dnsmessage.RCodeSuccess: "NOERROR", dnsmessage.RCodeFormatError: "FORMERR", dnsmessage.RCodeServerFailure: "SERVFAIL",
	dnsmessage.RCodeNameError: "NXDOMAIN", dnsmessage.RCodeNotImplemented: "NOTIMP", dnsmessage.RCodeRefused: "REFUSED",
}

// read reads an answer.
func read(data []byte, q dnsmessage.Question, id uint16, a *snapshot.NameAnswer) error {
	var p dnsmessage.Parser
	h, err := p.Start(data)
	if err != nil || h.ID != id || !h.Response {
		return errStray
	}
	got, err := p.Question()
	if err != nil || !strings.EqualFold(got.Name.String(), q.Name.String()) || got.Type != q.Type {
		return errStray
	}
	if err := p.SkipAllQuestions(); err != nil {
		return err
	}
	code := codes[h.RCode]
	if code == "" {
		code = fmt.Sprintf("code %d", h.RCode)
	}
	var addresses []netip.Addr
	alias := ""
	for range maxRecords {
		r, err := p.Answer()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			a.Code, a.Addresses, a.Alias, a.Truncated = code, addresses, alias, h.Truncated
			return nil
		}
		if err != nil {
			return fmt.Errorf("the answer cannot be read: %w", err)
		}
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			addresses = append(addresses, netip.AddrFrom4(body.A))
		case *dnsmessage.AAAAResource:
			addresses = append(addresses, netip.AddrFrom16(body.AAAA))
		case *dnsmessage.CNAMEResource:
			if alias == "" {
				alias = strings.TrimSuffix(body.CNAME.String(), ".")
			}
		}
	}
	return bounds.Errorf("the answer has more than %d records", maxRecords)
}
