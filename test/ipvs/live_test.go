// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/live"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// sctpReals are the endpoints of the Service shop/sctp, and where they live.
var sctpReals = map[string]string{"10.244.1.69:3868": "pods", "10.244.2.70:3868": "router"}

// TestProbesSayWhereIPVSSentThem probes virtual servers of each protocol and family, with and without connection
// tracking by IPVS: its own connection table names a real server for every connection, each in turn; connection
// tracking names the same one, or none.
func TestProbesSayWhereIPVSSentThem(t *testing.T) {
	listen(t)
	for at, home := range sctpReals {
		where := netip.MustParseAddrPort(at)
		bind(t, home, where.Addr())
		testutil.HoldSCTP(t, threadAt(t, home), where)
	}
	addresses := inhabit(t, "client")
	reals := map[string][]string{"10.96.106.106:3868": {"10.244.1.69:3868", "10.244.2.70:3868"}}
	for _, v := range virtuals(t) {
		for r, weighted := range v.reals {
			if weighted {
				reals[v.address.String()] = append(reals[v.address.String()], r.String())
			}
		}
	}
	const key = "net.ipv4.vs.conntrack"
	defer do(t, "sysctl -qw "+key+"=1")
	for _, value := range []string{"1", "0"} {
		do(t, "sysctl -qw "+key+"="+value)
		known := knownClients(t)
		tracked, connected := 0, 0
		for _, to := range []struct{ protocol, at string }{
			{"TCP", "10.96.180.79:80"},
			{"TCP", "[fd00:10:96::1cb4]:80"},
			{"UDP", "10.96.15.103:53"},
			{"SCTP", "10.96.106.106:3868"},
		} {
			for _, from := range []netip.Addr{{}, addresses[netip.MustParseAddrPort(to.at).Addr().Is4()]} {
				due := reals[to.at]
				if len(due) < 2 {
					t.Fatalf("%s has the real servers %q: the test needs two", to.at, due)
				}
				done, err := live.Run(t.Context(), "/", []snapshot.ProbeTarget{{
					Protocol: to.protocol, To: netip.MustParseAddrPort(to.at), From: from, Probes: rounds * len(due),
				}})
				if err != nil || done.Targets[0].Error != "" {
					t.Fatalf("%s %s: %v %s", to.protocol, to.at, err, done.Targets[0].Error)
				}
				got, fresh := map[string]int{}, 0
				for _, p := range done.Targets[0].List {
					if known[client(to.protocol, p.Local)] {
						t.Logf("%s=%s, %s %s: IPVS knew %s before", key, value, to.protocol, to.at, p.Local)
						continue
					}
					got[p.RealServer.String()]++
					fresh++
					// A UDP probe waits for a moment only: on a busy machine the answer comes after it.
					arrived := p.Result == snapshot.ProbeConnected || to.protocol == "UDP" && p.Result == snapshot.ProbeSent
					if value == "1" && (p.Endpoint != p.RealServer || !arrived) ||
						value == "0" && p.Endpoint.IsValid() && p.Endpoint != done.Targets[0].To ||
						p.SentTo(done.Targets[0].To) != p.RealServer {
						t.Errorf("%s=%s, %s %s from %s: %+v", key, value, to.protocol, to.at, from, p)
					}
					if p.Endpoint.IsValid() && p.Endpoint != done.Targets[0].To {
						tracked++
					}
					if p.Result == snapshot.ProbeConnected {
						connected++
					}
				}
				// A connection that IPVS knew keeps its real server, and takes nobody's turn.
				for _, r := range due {
					if least := fresh / len(due); got[r] < least || got[r] > (fresh+len(due)-1)/len(due) {
						t.Errorf("%s=%s, %s %s from %s: IPVS sent %d new connections to %v, in turn it is %d to each of %q", key,
							value, to.protocol, to.at, from, fresh, got, least, due)
						break
					}
				}
			}
		}
		t.Logf("%s=%s: %d connected, connection tracking knows of %d", key, value, connected, tracked)
		if value == "0" && tracked > 0 {
			t.Errorf("%s=0, and connection tracking knows of %d connections: it proves nothing", key, tracked)
		}
	}
	do(t, "sysctl -qw "+key+"=1")
	t.Run("trace --live of an SCTP Service, as a user runs it", traceSCTP)
}

// knownClients returns the clients in IPVS's connection table, in the words of client. A connection from such a port is
// no new one, and keeps the setting of net.ipv4.vs.conntrack from the time when it was made (ip_vs_conn_new in
// net/netfilter/ipvs/ip_vs_conn.c: IP_VS_CONN_F_NFCT): UDP's, which live for minutes, were met by chance.
func knownClients(t *testing.T) map[string]bool {
	t.Helper()
	table, err := os.ReadFile("/proc/net/ip_vs_conn")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		if w := strings.Fields(line); len(w) >= 3 {
			known[strings.Join(w[:3], " ")] = true
		}
	}
	return known
}

// client returns a client as IPVS's connection table prints it: protocol, address, port.
func client(protocol string, at netip.AddrPort) string {
	address := at.Addr().StringExpanded()
	if at.Addr().Is4() {
		address = fmt.Sprintf("%08X", at.Addr().AsSlice())
	}
	return fmt.Sprintf("%s %s %04X", protocol, address, at.Port())
}

// traceSCTP has the plugin probe an SCTP Service, whose endpoints listen.
func traceSCTP(t *testing.T) {
	out, err := command(t.Context(), "", plugin, "trace", "sctp", "-n", "shop", "--local", "--node", nodeName,
		"--kubeconfig", kubeconfig, "--from", "node", "--live", "--probes", "6", "-o", "json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	probed := 0
	for i := range r.Nodes {
		for k := range r.Nodes[i].Paths {
			p := &r.Nodes[i].Paths[k]
			o := p.Observed
			if o == nil || o.Error != "" || o.Connected != 6 || o.Scheduled != 6 || len(o.Endpoints) != 2 ||
				o.Endpoints[0].Count != 3 || len(o.Events) > 0 {
				t.Errorf("%s %s: %+v", p.Frontend.Kind, p.Frontend.Address, o)
			}
			probed++
		}
	}
	if probed == 0 {
		t.Errorf("nothing was probed:\n%s", out)
	}
}

// inhabit starts a process in a namespace, for probes find pods by the processes in them, and returns the pod's
// addresses of IPv4 (true) and IPv6.
func inhabit(t *testing.T, namespace string) map[bool]netip.Addr {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", namespace, "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 100 { // until it is there
		comm, _ := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/comm")
		if strings.TrimSpace(string(comm)) == "sleep" {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return map[bool]netip.Addr{
		true:  netip.MustParseAddr("10.244.1.254"),
		false: netip.MustParseAddr("fd00:10:244:1:ffff:ffff:ffff:fffe"),
	}
}
