// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// A program that fails, hangs or prints too much is no answer.
func TestRun(t *testing.T) {
	_, _, err := Run(t.Context(), "/", "/bin/sh", nil, "-c", "echo half; echo 'no good' >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "sh: exit status 3: no good") {
		t.Errorf("a failure: %v", err)
	}
	if _, _, err := Run(t.Context(), "/", "/does/not/exist", nil); err == nil {
		t.Error("a program that there is not ran")
	}
	if out, _, err := Run(t.Context(), "/", "/bin/cat", strings.NewReader("in")); string(out) != "in" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Run(ctx, "/", "/bin/sh", nil, "-c", "sleep 60"); err == nil {
		t.Error("an ended context did not end the program")
	}
	b := &bounded{limit: 3}
	if _, err := io.WriteString(b, "abcd"); err == nil {
		t.Error("too much was taken")
	}
	// As exec copies: a buffer that is embedded would be asked to read by itself, without any limit.
	if _, err := io.Copy(&bounded{limit: 3}, io.LimitReader(neverEnding{}, 100)); err == nil {
		t.Error("too much was copied")
	}
	b = &bounded{limit: 3, drop: true}
	if n, err := io.WriteString(b, "abcd"); n != 4 || err != nil || b.buf.String() != "abc" {
		t.Errorf("%d, %v, %q", n, err, b.buf.String())
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

// A program that others than root could have written is not run, wherever links lead to it.
func TestFindTakesRootsProgramsAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root makes files of others")
	}
	const nobody = 65534
	for name, tt := range map[string]struct {
		prepare func(root string) error
		want    string
	}{
		"root's": {func(string) error { return nil }, "/usr/sbin/nft"},
		"a link to root's": {func(root string) error {
			return errors.Join(os.Rename(root+"/usr/sbin/nft", root+"/etc/alternative"),
				os.Symlink("/etc/alternative", root+"/usr/sbin/nft"))
		}, "/usr/sbin/nft"},
		"a link out of the root": {func(root string) error {
			return errors.Join(os.Remove(root+"/usr/sbin/nft"), os.Symlink("/bin/sh", root+"/usr/sbin/nft"))
		}, ""},
		"a user's":            {func(root string) error { return os.Chown(root+"/usr/sbin/nft", nobody, 0) }, ""},
		"anyone may write it": {func(root string) error { return os.Chmod(root+"/usr/sbin/nft", 0o777) }, ""},
		"a group may write it": {func(root string) error {
			return errors.Join(os.Chown(root+"/usr/sbin/nft", 0, 50), os.Chmod(root+"/usr/sbin/nft", 0o775))
		}, ""},
		"root's group may write it": {func(root string) error {
			return os.Chmod(root+"/usr/sbin/nft", 0o775)
		}, "/usr/sbin/nft"},
		"in a folder of a user's":        {func(root string) error { return os.Chown(root+"/usr/sbin", nobody, 0) }, ""},
		"in a folder that anyone writes": {func(root string) error { return os.Chmod(root+"/usr/sbin", 0o777) }, ""},
		"a folder": {func(root string) error {
			return errors.Join(os.Remove(root+"/usr/sbin/nft"), os.Mkdir(root+"/usr/sbin/nft", 0o755))
		}, ""},
		"there, and again elsewhere": {func(root string) error {
			return errors.Join(os.Chown(root+"/usr/sbin/nft", nobody, 0), os.WriteFile(root+"/usr/bin/nft", nil, 0o755))
		}, "/usr/bin/nft"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := errors.Join(os.MkdirAll(root+"/usr/sbin", 0o755), os.MkdirAll(root+"/usr/bin", 0o755),
				os.MkdirAll(root+"/etc", 0o755), os.WriteFile(root+"/usr/sbin/nft", nil, 0o755), tt.prepare(root)); err != nil {
				t.Fatal(err)
			}
			if got := Find(root, "nft"); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	if got := Find("/", "sh"); got == "" {
		t.Error("this machine's own shell is not found")
	}
}
