// SPDX-License-Identifier: Apache-2.0

// Package tools runs programs of the helper's image, of the node, or of a container on it, each in its own file system.
// Nothing goes through a shell.
package tools

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// Bounds of a program that is run.
const (
	runTime   = 2 * time.Minute
	runOutput = bounds.File
)

// dirs are the directories that programs are searched in, below each root. The last one is k3s's.
var dirs = []string{
	"/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin",
	"/var/lib/rancher/k3s/data/current/bin/aux",
}

// Find returns the path of a program below a root, as seen from within it; "" where it is not there.
func Find(root, program string) string {
	for _, dir := range dirs {
		// Lstat: the target of a link may exist only if root is the root directory. It suffices that the name exists.
		if info, err := os.Lstat(filepath.Join(root, dir, program)); err == nil && !info.IsDir() {
			return filepath.Join(dir, program)
		}
	}
	return ""
}

// Run runs a program of a root, by its path there, and returns what it prints. stdin may be nil. The error names the
// program and holds what it wrote to its standard error. The caller sees to it that no argument is anything else than
// what it is meant to be.
func Run(
	ctx context.Context, root, path string, stdin io.Reader, args ...string,
) (stdout []byte, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // the names are constants of the callers
	if root != "/" {
		// exec would resolve the path in this process's own file system.
		cmd.Path = path
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		cmd.Dir = "/"
		cmd.Err = nil
	}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.WaitDelay = 5 * time.Second // on a node that is short of processors, what was written is read late
	cmd.Stdin = stdin
	out, errOut := &bounded{limit: runOutput}, &bounded{limit: 64 << 10, drop: true}
	cmd.Stdout, cmd.Stderr = out, errOut
	err = cmd.Run()
	stderr = strings.TrimSpace(errOut.buf.String())
	switch {
	case err == nil:
		return out.buf.Bytes(), stderr, nil
	case ctx.Err() != nil:
		return nil, stderr, fmt.Errorf("%s did not end within %v", filepath.Base(path), runTime)
	case stderr != "":
		return nil, stderr, fmt.Errorf("%s: %w: %s", filepath.Base(path), err, stderr)
	}
	return nil, stderr, fmt.Errorf("%s: %w", filepath.Base(path), err)
}

// bounded is a buffer that takes no more than a limit. It does not embed the buffer: io.Copy would find its ReadFrom,
// and no limit.
type bounded struct {
	buf   bytes.Buffer
	limit int
	drop  bool // what is too much is dropped, not an error
}

func (b *bounded) Write(p []byte) (int, error) {
	if rest := b.limit - b.buf.Len(); len(p) > rest {
		if !b.drop {
			return 0, fmt.Errorf("it prints more than %d bytes", b.limit)
		}
		b.buf.Write(p[:rest])
		return len(p), nil
	}
	return b.buf.Write(p)
}
