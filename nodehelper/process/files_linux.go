// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// FileIn reads a file below a directory as if that were the root, up to limit bytes of a regular file. Symbolic links
// stay below it, as those of a mounted ConfigMap do, and those of /proc lead nowhere (openat2(2), RESOLVE_IN_ROOT and
// RESOLVE_NO_MAGICLINKS, since Linux 5.6).
func FileIn(root *os.File, path string, limit int64) ([]byte, error) {
	is, err := OpenIn(root, path, unix.O_PATH) // to open a device, or the kernel's log, is to do something
	if err != nil {
		return nil, err
	}
	defer is.Close()
	var system unix.Statfs_t
	if info, err := is.Stat(); err != nil {
		return nil, err
	} else if err := unix.Fstatfs(int(is.Fd()), &system); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() || slices.Contains(ofKernel, system.Type) {
		return nil, fmt.Errorf("%s is not a regular file", quote(path))
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", is.Fd()), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", quote(path), errors.Unwrap(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", quote(path), limit)
	}
	return data, err
}

// ofKernel are the file systems whose files are the kernel's own.
var ofKernel = []int64{unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC}

// OpenIn opens a file below a directory as if that were the root.
func OpenIn(root *os.File, path string, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(int(root.Fd()), path, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOSYS):
		return nil, fmt.Errorf("%s is not read: the kernel cannot keep its links within the root (openat2, Linux 5.6)",
			quote(path))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", quote(path), err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openAt opens a file of a process's directory.
func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// readAt reads a file of a process's directory. What is longer than limit is cut off.
func readAt(dir *os.File, name string, limit int64) ([]byte, error) {
	f, err := openAt(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// readlinkAt reads a link of a process's directory.
func readlinkAt(dir *os.File, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
