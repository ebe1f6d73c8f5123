// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	nodeName = "node1"                         // of the captured objects: the one that this machine plays
	captured = "../../testdata/snapshots/ipvs" // whose objects are created
	// for a server to begin its work; without KVM this takes some 30 s on a machine that does nothing else, and was
	// over eight minutes on one that was busy with the tests on the cluster
	patience = 20 * time.Minute
)

// plugin and bin are absolute, for commands run elsewhere, too.
var plugin, bin, work string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ipvs:", err)
		code = 1
	}
	os.Exit(code)
}

// run brings up a cluster of one node and runs the tests on it. Nothing is taken down: the machine ends with the tests.
func run(m *testing.M) (int, error) {
	// On any other machine this would rewrite its network.
	if _, err := os.Stat("/run/vm/inside"); err != nil {
		return 1, errors.New(`this is not a machine of test/vm: run go test with -exec "$PWD/test/vm/vm run"`)
	}
	if os.Getenv(child) != "" {
		return m.Run(), nil // all is there
	}
	var err error
	if plugin, err = find("IPVS_PLUGIN", "../../bin/kubectl-svcproxy"); err != nil {
		return 1, err
	}
	if bin, err = find("KUBERNETES_BIN", os.Getenv("HOME")+"/.cache/kubectl-svcproxy/kubernetes-v1.37.1-*"); err != nil {
		return 1, err
	}
	if work, err = os.MkdirTemp("", "ipvs"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(work)
	ctx := context.Background()
	start := time.Now()
	if err := layNetwork(ctx); err != nil {
		return 1, err
	}
	if err := startControlPlane(ctx); err != nil {
		return 1, err
	}
	if err := createObjects(ctx); err != nil {
		return 1, err
	}
	if err := startKubeProxy(ctx); err != nil {
		return 1, err
	}
	fmt.Printf("kube-proxy has programmed the captured Services %.0f s after the start\n", time.Since(start).Seconds())
	return m.Run(), nil
}

// find returns what an environment variable names, or the one that is at the usual place.
func find(variable, usual string) (string, error) {
	if v := os.Getenv(variable); v != "" {
		usual = v
	}
	found, err := filepath.Glob(usual)
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%s: %d of %s are there, one is needed: hack/test.sh ipvs builds it", variable,
			len(found), usual)
	}
	return filepath.Abs(found[0])
}

// program is a server that runs until the machine ends.
type program struct {
	name, log string
	ended     chan error
	process   *os.Process
}

// start runs a server of Kubernetes; its output goes to a file of the working folder.
func start(ctx context.Context, path string, args ...string) (*program, error) {
	name := filepath.Base(path)
	p := &program{name: name, log: filepath.Join(work, name+".log"), ended: make(chan error, 1)}
	f, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.process = cmd.Process
	go func() { p.ended <- cmd.Wait() }()
	return p, nil
}

// await asks until there is no error, and says what the program's log ends with when there never is.
func (p *program) await(ask func() error) error {
	var err error
	for end := time.After(patience); ; {
		if err = ask(); err == nil {
			return nil
		}
		select {
		case status := <-p.ended:
			return fmt.Errorf("%s ended: %w; its log ends with\n%s", p.name, status, p.tail())
		case <-end:
			return fmt.Errorf("%s: not within %v: %w; its log ends with\n%s", p.name, patience, err, p.tail())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (p *program) tail() []byte {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-2000):]
}

// command runs a program of the system and returns what it prints.
func command(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// do runs a line of words; none of them has a space in it.
func do(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	out, err := command(t.Context(), "", words[0], words[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
