// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Names that are known are answered, in any case of letters; others do not exist.
func TestAnswer(t *testing.T) {
	z, err := parseZone([]string{"web.shop=10.97.0.7,fd00::7", "db.shop=db.example.org", "none.shop="})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		kind dnsmessage.Type
		want string
	}{
		{"web.shop.", dnsmessage.TypeA, "RCodeSuccess 10.97.0.7"},
		{"Web.Shop.", dnsmessage.TypeAAAA, "RCodeSuccess fd00::7"},
		{"db.shop.", dnsmessage.TypeA, "RCodeSuccess db.example.org."},
		{"none.shop.", dnsmessage.TypeA, "RCodeSuccess"},
		{"web.", dnsmessage.TypeA, "RCodeNameError"},
	} {
		q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{
			{Name: dnsmessage.MustNewName(tt.name), Type: tt.kind, Class: dnsmessage.ClassINET},
		}}
		query, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		data, err := z.answer(query)
		var m dnsmessage.Message
		if err == nil {
			err = m.Unpack(data)
		}
		if err != nil || m.ID != 7 || !m.Response {
			t.Fatalf("%s: %v %+v", tt.name, err, m)
		}
		got := []string{m.RCode.String()}
		for _, r := range m.Answers {
			switch body := r.Body.(type) {
			case *dnsmessage.AResource:
				got = append(got, netip.AddrFrom4(body.A).String())
			case *dnsmessage.AAAAResource:
				got = append(got, netip.AddrFrom16(body.AAAA).String())
			case *dnsmessage.CNAMEResource:
				got = append(got, body.CNAME.String())
			}
		}
		if is := strings.Join(got, " "); is != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, is, tt.want)
		}
	}
	if _, err := parseZone([]string{"web"}); err == nil {
		t.Error("a name without an address was taken")
	}
}
