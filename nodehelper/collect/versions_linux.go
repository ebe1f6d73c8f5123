// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"fmt"

	"github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"

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
		if t, err := iptables.New(iptables.Path(path)); err == nil {
			major, minor, patch := t.GetIptablesVersion()
			fmt.Fprintf(&out, "the helper's %s: %d.%d.%d\n", name, major, minor, patch)
		}
	}
	for _, root := range r.roots {
		for _, program := range []string{"iptables", "nft", "ipset", "conntrack"} {
			path := tools.Find(root, program)
			if path == "" {
				continue
			}
			if text, stderr, err := tools.Run(ctx, root, path, nil, "--version"); err == nil {
				if len(text) == 0 {
					text = []byte(stderr)
				}
				fmt.Fprintf(&out, "%s %s: %s\n", r.whose(root), program, firstLine(string(bytes.TrimSpace(text))))
			}
		}
	}
	return out.Bytes(), nil
}
