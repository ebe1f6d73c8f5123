// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestPayload: what --payload and --size have sent over each connection, and what they may not be.
func TestPayload(t *testing.T) {
	for _, tt := range []struct {
		args   string
		want   string // what is sent
		length int    // of it, where want is empty
		err    string
	}{
		{args: ""},
		{args: "--live"},
		{args: "--live --payload hello", want: "hello"},
		{args: `--live --payload PING\r\n`, want: "PING\r\n"},
		{args: "--live --payload http", want: httpPayload},
		{args: "--live --payload ab --size 5", want: "ababa"},
		{args: "--live --payload ab --size 2", want: "ab"},
		{args: "--live --payload x --size 16384", length: 16384},
		{args: "--live --payload http --size 9000", length: 9000},
		{args: "--payload hello", err: "give --live, too"},
		{args: "--live --payload=", err: "--payload has 0 bytes: it may have 1 to 1000"},
		{args: "--live --payload " + strings.Repeat("x", 1001), err: "--payload has 1001 bytes"},
		{args: "--live --size 9000", err: "give --payload TEXT or --payload http, too"},
		{args: "--live --payload hello --size 4", err: "--size 4: it may be 5, as --payload has that many bytes, to 16384"},
		{args: "--live --payload hello --size 16385", err: "--size 16385: it may be 5"},
		{args: "--live --payload hello --size -1", err: "--size -1: it may be 5"},
		{args: "--live --payload http --size 80", err: "--size 80: it may be "},
	} {
		var p probeFlags
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		p.add(f)
		p.addPayload(f)
		if err := f.Parse(strings.Fields(tt.args)); err != nil {
			t.Fatal(err)
		}
		got, err := p.bytes(f)
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%.60s: %v, want %q", tt.args, err, tt.err)
			}
		case err != nil:
			t.Errorf("%.60s: %v", tt.args, err)
		case tt.length > 0 && len(got) != tt.length, tt.length == 0 && got != tt.want:
			t.Errorf("%.60s: %d bytes: %.100q", tt.args, len(got), got)
		}
		if strings.HasPrefix(got, "GET") {
			if _, err := http.ReadRequest(bufio.NewReader(strings.NewReader(got))); err != nil {
				t.Errorf("%s: a server reads %v", tt.args, err)
			}
		}
	}
}
