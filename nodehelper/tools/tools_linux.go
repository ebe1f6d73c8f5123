// SPDX-License-Identifier: Apache-2.0

// Package tools runs programs of the helper's image, or of the node in its own file system: root's alone, and never one
// that a container has brought. Nothing goes through a shell.
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

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/process"
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

// Find returns the path of a program below a root, as seen from within it; "" where it is not there, and where others
// than root could have written it.
func Find(root, program string) string {
	for _, dir := range dirs {
		path := filepath.Join(dir, program)
		if ofRoot(root, dir, unix.S_IFDIR) && ofRoot(root, path, unix.S_IFREG) {
			return path
		}
	}
	return ""
}

// ofRoot reports whether a path below a root leads to a file of a type that is root's, and that no one else may write.
// Links lead to where they would with that root; before Linux 5.6 that is known of this process's own root alone.
func ofRoot(root, path string, kind uint32) bool {
	var st unix.Stat_t
	if root == "/" {
		if unix.Stat(path, &st) != nil {
			return false
		}
	} else {
		dir, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return false
		}
		defer dir.Close()
		f, err := process.OpenIn(dir, path, unix.O_PATH)
		if err != nil {
			return false
		}
		defer f.Close()
		if unix.Fstat(int(f.Fd()), &st) != nil {
			return false
		}
	}
	return st.Mode&unix.S_IFMT == kind && st.Uid == 0 && st.Mode&0o002 == 0 && (st.Mode&0o020 == 0 || st.Gid == 0)
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
