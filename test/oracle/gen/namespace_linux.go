// SPDX-License-Identifier: Apache-2.0

package gen

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// prepared is set where kube-proxy may write its rules into the kernel.
var prepared bool

// InNamespace runs the test once more in a network namespace of its own, where kube-proxy may write its rules into
// the kernel, and tells whether this is the process in it: true, and the test goes on; false, and it has been run.
func InNamespace(t *testing.T) bool {
	t.Helper()
	if !testutil.Isolate(t, syscall.CLONE_NEWNET, "nft", "ip", "ss") {
		return false
	}
	testutil.Run(t, "", "ip", "link", "set", "lo", "up") // for kube-proxy's own listeners
	// Rules that name an interface by its number (kube-proxy before 1.34) can be loaded only where there is one of
	// the name.
	testutil.Run(t, "", "ip", "link", "add", "cni0", "type", "veth", "peer", "name", "cni1")
	prepared = true
	return true
}

// Flush empties the namespace's nftables.
func Flush(ctx context.Context) error {
	_, err := nft(ctx, "flush", "ruleset")
	return err
}

// Listing returns what nft -j list ruleset prints.
func Listing(ctx context.Context) ([]byte, error) { return nft(ctx, "-j", "list", "ruleset") }

// Listeners returns what ss -Hltunp prints, with the name of kube-proxy's process for this one.
func Listeners(ctx context.Context) ([]byte, error) {
	out, err := run(ctx, "ss", "-Hltunp")
	pid := strconv.Itoa(os.Getpid())
	own := regexp.MustCompile(`\(\("[^"]*",pid=` + pid + `,`)
	return own.ReplaceAll(out, []byte(`(("kube-proxy",pid=`+pid+`,`)), err
}

func nft(ctx context.Context, args ...string) ([]byte, error) { return run(ctx, "nft", args...) }

func run(ctx context.Context, program string, args ...string) ([]byte, error) {
	if !prepared {
		return nil, fmt.Errorf("%s %s: not in a network namespace of its own", program, strings.Join(args, " "))
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // words of the tests
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, stderr.String())
	}
	return out, nil
}
