// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/process"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/tools"
)

// readVersions says which kernel runs, and which programs read it.
func readVersions(ctx context.Context, r *reader) ([]byte, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "kernel: %s %s\n", unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:]))
	for _, name := range []string{"iptables-nft", "iptables-legacy"} {
		path := tools.Find("/", name)
		if path == "" {
			continue
		}
		version, err := versions.of("/", path, func() (string, error) {
			t, err := iptables.New(iptables.Path(path))
			if err != nil {
				return "", err
			}
			major, minor, patch := t.GetIptablesVersion()
			return fmt.Sprintf("%d.%d.%d", major, minor, patch), nil
		})
		if err == nil {
			fmt.Fprintf(&out, "the helper's %s: %s\n", name, version)
		}
	}
	for _, root := range r.roots {
		for _, program := range []string{"iptables", "nft", "ipset", "conntrack"} {
			path := tools.Find(root, program)
			if path == "" {
				continue
			}
			version, err := versions.of(root, path, func() (string, error) {
				text, stderr, err := tools.Run(ctx, root, path, nil, "--version")
				if len(text) == 0 {
					text = []byte(stderr)
				}
				return firstLine(string(bytes.TrimSpace(text))), err
			})
			if err == nil {
				fmt.Fprintf(&out, "%s %s: %s\n", whose(root), program, version)
			}
		}
	}
	if r.proxy != nil && r.proxy.PodUID != "" {
		out.WriteString("kube-proxy's programs: not asked, nothing of a container is run\n")
	}
	return out.Bytes(), nil
}

// versions are those of the programs that this process has asked: the agent would start ten processes in each pass to
// be told the same.
var versions versionsOf

// maxVersions bounds how many are remembered: those of two or three roots are a dozen.
const maxVersions = 64

// versionsOf remembers what programs say of themselves, as long as they are the same file.
type versionsOf struct {
	mu    sync.Mutex
	known map[executable]string
}

// executable is a program's file as it was asked: another file, or another content, is another program.
type executable struct {
	root, path   string
	device, file uint64
	size         int64
	written      unix.Timespec
	changed      unix.Timespec
}

// of returns what ask returns for the program at a path of a root, or has returned before. An error is not remembered,
// nor what a script says, which may choose a program each time, nor anything where the kernel does not tell which file
// it is (before Linux 5.6).
func (v *versionsOf) of(root, path string, ask func() (string, error)) (string, error) {
	is, known := identify(root, path)
	v.mu.Lock()
	text, ok := v.known[is]
	v.mu.Unlock()
	if known && ok {
		return text, nil
	}
	text, err := ask()
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil && known {
		if v.known == nil || len(v.known) >= maxVersions {
			v.known = map[executable]string{}
		}
		v.known[is] = text
	}
	return text, err
}

// elf is how an executable begins (elf(5)).
const elf = "\x7fELF"

// identify finds the file at a path, with links as they are below the root: /etc/alternatives chooses which iptables
// that of a distribution is. It is false for what is no executable of the machine's (ELF).
func identify(root, path string) (executable, bool) {
	dir, err := os.Open(root)
	if err != nil {
		return executable{}, false
	}
	defer dir.Close()
	f, err := process.OpenIn(dir, path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return executable{}, false
	}
	defer f.Close()
	var st unix.Stat_t
	var magic [len(elf)]byte
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return executable{}, false
	}
	if n, err := f.ReadAt(magic[:], 0); err != nil || string(magic[:n]) != elf {
		return executable{}, false
	}
	return executable{root, path, st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, true
}
