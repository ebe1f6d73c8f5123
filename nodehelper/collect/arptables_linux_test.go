// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// Rules of arptables-legacy are listed with what decides; to read them makes no table.
func TestRulesOfArptables(t *testing.T) {
	if !testutil.Isolate(t, syscall.CLONE_NEWNET, "arptables-legacy") {
		return
	}
	var out bytes.Buffer
	if err := arptables(&out); err != nil || out.Len() > 0 {
		t.Fatalf("%q, %v", out.String(), err)
	}
	if names, _ := os.ReadFile("/proc/thread-self/net/arp_tables_names"); len(bytes.TrimSpace(names)) > 0 {
		t.Fatalf("a table was made: %s", names)
	}
	for _, rule := range []string{
		"-A INPUT -i eth0 --opcode 2 -j DROP",
		"-A INPUT -s 10.0.0.0/8 ! -d 10.1.2.3 -i veth+ -j ACCEPT",
		"-A OUTPUT ! -o eth0 --opcode 1 -j mangle --mangle-ip-s 1.2.3.4",
		"-A FORWARD --src-mac 00:11:22:33:44:55 -j DROP",
		"-P OUTPUT DROP",
		"-N mine", "-A mine -j DROP", "-A INPUT -j mine",
		"-A INPUT --h-length 6 --h-type 1 -j RETURN",
	} {
		testutil.Run(t, "", strings.Fields("arptables-legacy "+rule)...)
	}
	if err := arptables(&out); err != nil {
		t.Fatal(err)
	}
	const want = `arptables filter INPUT -i eth0 --opcode 2 -j DROP
arptables filter INPUT -i veth+ -s 10.0.0.0/8 ! -d 10.1.2.3/32 -j ACCEPT
arptables filter INPUT -j …
arptables filter INPUT -j RETURN
arptables filter OUTPUT ! -o eth0 --opcode 1 -j mangle
arptables filter OUTPUT -j DROP
arptables filter FORWARD … -j DROP
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}

// What is no table is refused, and nothing is read beyond its end.
func TestTablesOfArptablesThatAreCutOff(t *testing.T) {
	rule := make([]byte, arptEntry+40)
	binary.NativeEndian.PutUint16(rule[arptOffsets:], arptEntry)
	binary.NativeEndian.PutUint16(rule[arptOffsets+2:], uint16(len(rule)))
	drop := int32(-1)
	binary.NativeEndian.PutUint32(rule[arptEntry+arptVerdict:], uint32(drop))
	info := &arptGetInfo{validHooks: 1}
	var out bytes.Buffer
	if err := arptRules(&out, "filter", info, rule); err != nil || out.String() != "arptables filter INPUT -j DROP\n" {
		t.Fatalf("%q, %v", out.String(), err)
	}
	for cut := range rule {
		if err := arptRules(&out, "filter", info, rule[:cut]); !errors.Is(err, errArptables) {
			t.Fatalf("%d bytes: %v", cut, err)
		}
	}
	binary.NativeEndian.PutUint16(rule[arptOffsets+2:], 0)
	if err := arptRules(&out, "filter", info, rule); !errors.Is(err, errArptables) {
		t.Errorf("a rule that leads nowhere: %v", err)
	}
}
