// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	helper "github.com/svcproxy/kubectl-svcproxy/nodehelper/program"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// TestRunExpirer is what outlives the helper of TestTheTimeHoldsWithoutTheHelper.
func TestRunExpirer(t *testing.T) {
	flags := flag.NewFlagSet("expire", flag.ContinueOnError)
	root := flags.String("root", "", "")
	if err := flags.Parse(flag.Args()); err != nil || flags.NArg() != 1 {
		return // nobody asks for one
	}
	p, err := helper.New(helper.Options{Root: *root})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Expire(t.Context(), flags.Arg(0), os.NewFile(3, "answer")); err != nil {
		t.Error(err)
	}
}

// holdFor is how long the helper holds its path: processors are slow here.
const holdFor = 45 * time.Second

// TestHoldUntilKilled is the helper that is killed.
func TestHoldUntilKilled(t *testing.T) {
	file, is := strings.CutPrefix(os.Getenv(child), "hold ")
	if !is {
		return // nobody asks for one
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p plan.Plan
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	prog, err := helper.New(helper.Options{Root: "/", Expirer: []string{os.Args[0], "-test.run=^TestRunExpirer$", "--"}})
	if err != nil {
		t.Fatal(err)
	}
	req := asking(&p, "rr")
	req.TTL = holdFor
	r, err := prog.Apply(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("until", r.Expires.UnixNano(), strings.Join(r.Notes, " "))
	select {}
}

// A helper is killed, and what it programmed is undone at its time all the same. A connection to a real server that
// stays lives on.
func TestTheTimeHoldsWithoutTheHelper(t *testing.T) {
	listen(t)
	cluster, files := captures(t)
	p := planned(t, cluster, files, ep3)
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	defer broken(t)()
	before := exactly(t)

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestHoldUntilKilled$")
	cmd.Env = append(os.Environ(), child+"=hold "+file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 2 || words[0] != "until" { // a third one is a warning
		rest, _ := io.ReadAll(out)
		t.Fatalf("the helper: %q %v\n%s", line, err, rest)
	}
	ns, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Unix(0, ns)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed

	// Each of the endpoints gets its turn; the one that has no weight without the plan is one of them.
	client, stays := threadAt(t, "client"), "10.244.3.21:8080"
	connections := map[string]net.Conn{}
	for range 3 {
		var c net.Conn
		client.Do(func() { c, err = (&net.Dialer{Timeout: answerWait}).DialContext(ctx, "tcp", ep3Server) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		connections[answered(t, c)] = c
	}
	if len(connections) != 3 || connections["10.244.1.19:8080"] == nil || connections[stays] == nil {
		t.Fatalf("in time: answered by %v", connections)
	}
	if left := time.Until(until); left < 0 {
		t.Fatalf("this machine is too slow: it took %v longer than the time", -left)
	}
	time.Sleep(time.Until(until))
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if left, _ := filepath.Glob("/run/svcproxy/*"); len(left) == 0 {
			break
		}
	}
	t.Logf("undone %v after the time", time.Since(until).Round(time.Millisecond))
	if left, err := filepath.Glob("/run/svcproxy/*"); len(left) > 0 || err != nil {
		t.Errorf("%v is left of the journal (%v)", left, err)
	}
	unchanged(t, before)
	if got := answered(t, connections[stays]); got != stays {
		t.Errorf("the established connection is answered by %s", got)
	}
}

// answered is the endpoint that answers on a connection.
func answered(t *testing.T, c net.Conn) string {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(answerWait)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	by, _, _ := strings.Cut(line, " ")
	return by
}
