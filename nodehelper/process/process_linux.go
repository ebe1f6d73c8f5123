// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/cgroup"
)

// Process is a process of the node that is what its name says. What is read of it is read through one open directory of
// /proc, so that it is never that of another process with the same number.
type Process struct {
	PID     int
	Program string   // the file name of its executable
	Name    string   // by which it goes: of several programs in one executable which of them it is
	Args    []string // its command line
	// Cgroup is its control group, as /proc/PID/cgroup has it for a process of the node: one line of it.
	Cgroup string
	// PodUID is the pod's of that control group, as the kubelet writes it there: its UID, of a static pod the hash of its
	// manifest. Empty for a process outside of pods.
	PodUID string

	parent int
	facts  facts
	dir    *os.File
}

// Named is a process that merely has the name of a program.
type Named struct {
	PID  int
	Name string // the program's
	Why  string // why it is not taken for it, a clause
}

// Bounds on what is read of a process, and of how many.
const (
	maxProcesses = 1 << 18
	maxText      = 64 << 10 // bytes of /proc/PID/status and its like
	maxArgs      = 1 << 20  // bytes of the command line
	maxNamed     = 20
	maxSockets   = 1 << 14
)

// Find finds the processes in this thread's network namespace that run one of some programs, by the file names of their
// executables, and those that merely have such a name, at most maxNamed of them. Of a process and its children the
// process alone is found: a child has its executable until it runs another one. The caller closes each.
//
// A process is what its name says if root itself vouches for it: see [vouch].
func Find(programs []Program) (found []*Process, named []Named, err error) {
	n, err := nodeOf()
	if err != nil {
		return nil, nil, err
	}
	err = cgroup.OnNode(func(entered error) error {
		n.entered = entered
		return Each(func(pid int, dir *os.File) (keep bool) {
			p, name, err := n.look(pid, dir, programs)
			switch {
			case p != nil:
				found = append(found, p)
			case err != nil && len(named) < maxNamed:
				named = append(named, Named{pid, name, err.Error()})
			}
			return p != nil
		})
	})
	return starters(found), named, err
}

// Each calls visit for each process, in the order of their numbers, by its number and its directory in /proc, which is
// closed unless it is kept. More than maxProcesses are an error: what is not seen is not absent.
func Each(visit func(pid int, dir *os.File) (keep bool)) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	if len(pids) > maxProcesses {
		return fmt.Errorf("there are more than %d processes", maxProcesses)
	}
	slices.Sort(pids)
	for _, pid := range pids {
		dir, err := os.OpenFile("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			continue // it has ended
		}
		if !visit(pid, dir) {
			dir.Close()
		}
	}
	return nil
}

// starters drops, and closes, the processes that another one of them has started.
func starters(all []*Process) []*Process {
	children := func(p *Process) bool {
		return slices.ContainsFunc(all, func(o *Process) bool { return o.PID == p.parent && o.Program == p.Program })
	}
	out := make([]*Process, 0, len(all))
	for _, p := range all {
		if children(p) {
			p.Close()
		} else {
			out = append(out, p)
		}
	}
	return out
}

// Close gives up the process.
func (p *Process) Close() { p.dir.Close() }

// Still reports whether the process is still the one that was found: it runs, and has executed nothing else.
func (p *Process) Still() bool {
	now, err := factsOf(p.dir)
	return err == nil && now == p.facts
}

// Sockets returns the inodes of the sockets that the process has open.
func (p *Process) Sockets() (map[string]bool, error) {
	fd, err := unix.Openat(int(p.dir.Fd()), "fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/proc/%d/fd: %w", p.PID, err)
	}
	dir := os.NewFile(uintptr(fd), "fd")
	defer dir.Close()
	names, err := dir.Readdirnames(maxSockets)
	if err != nil {
		return nil, fmt.Errorf("/proc/%d/fd: %w", p.PID, err)
	}
	out := map[string]bool{}
	for _, name := range names {
		link, err := readlinkAt(dir, name)
		if inode, ok := strings.CutPrefix(link, "socket:["); err == nil && ok {
			out[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return out, nil
}

// File reads a file of the process's own file system, up to limit bytes of a regular file. Symbolic links lead nowhere
// else (RESOLVE_IN_ROOT of openat2, since Linux 5.6; before, nothing is read).
func (p *Process) File(path string, limit int64) ([]byte, error) {
	root, err := openAt(p.dir, "root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return FileIn(root, path, limit)
}

// node is what processes are compared with.
type node struct {
	network string // this thread's network namespace, as /proc/PID/ns/net has it
	owner   fileID // the user namespace that has that network namespace; zero: the kernel does not tell
	user    fileID // the node's user namespace, which is this process's; zero: the kernel has none
	root    fileID // the root directory of the node's first process
	noRoot  error  // why that is not known
	entered error  // why control groups are not seen as the node sees them
}

func nodeOf() (n *node, err error) {
	n = &node{owner: ownerOf(ownNetwork)}
	if n.network, err = os.Readlink(ownNetwork); err != nil {
		return nil, err
	}
	if n.user, err = fileAt(unix.AT_FDCWD, "/proc/self/ns/user"); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	n.root, n.noRoot = fileAt(unix.AT_FDCWD, "/proc/1/root")
	return n, nil
}

// fileAt returns which file a path leads to.
func fileAt(dir int, path string) (fileID, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, path, &st, 0)
	return fileID{st.Dev, st.Ino}, err
}

// ownNetwork is the network namespace of the calling thread: that of the process may be another one, as its first
// thread may be in a pod's to make a connection there.
const ownNetwork = "/proc/thread-self/ns/net"

// look looks at a process: it returns it if it runs one of the programs, and if it merely has the name of one, that
// name and why it is not taken for it.
func (n *node) look(pid int, dir *os.File, programs []Program) (p *Process, name string, err error) {
	exe, err := readlinkAt(dir, "exe")
	if err != nil {
		return nil, "", nil //nolint:nilerr // it has ended, or is a thread of the kernel's
	}
	if network, err := readlinkAt(dir, "ns/net"); err != nil || network != n.network {
		return nil, "", nil //nolint:nilerr // it is elsewhere, or has ended
	}
	program := filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
	at := slices.IndexFunc(programs, func(x Program) bool { return x.File == program })
	if at < 0 {
		// Not by its command line: whoever stops a process's memory from being read stops its reader.
		comm := commOf(dir)
		for _, x := range programs {
			if called := x.named(comm, nil); called != "" {
				return nil, called, fmt.Errorf("its executable is %s", quote(program))
			}
		}
		return nil, "", nil
	}
	p = &Process{PID: pid, Program: program, Name: program, dir: dir}
	if err := n.vouch(p); err != nil {
		if errors.Is(err, errGone) {
			return nil, "", nil
		}
		return nil, program, err
	}
	p.Args = argsOf(dir)
	if programs[at].Names != nil {
		if p.Name = programs[at].named(commOf(dir), p.Args); p.Name == "" {
			return nil, "", nil // another one of a program that is several
		}
	}
	return p, "", nil
}

// errGone says that a process has ended, or executed something else, while it was looked at.
var errGone = errors.New("it has ended")

// vouch finds out whether a process is what the name of its executable says, and why not. Anyone may give that name to
// a program. It is believed
//
//   - of a process of the node itself: all its user IDs are 0, its user namespace is the node's, its root directory the
//     node's first process's, and its executable is root's file, which no one else may write;
//   - of a process in a pod: it has CAP_NET_ADMIN in the user namespace that has the node's network namespace, so that
//     it could write every rule itself and gains nothing by being believed, and the kubelet has put it into a control
//     group of a pod, through directories that only root may write;
//
// and of neither if its executable gives rights to whoever runs it (set-user-ID, set-group-ID, file capabilities).
// Everything is read once more at the end: what executes another program meanwhile is not believed.
//
// What the kernel itself says of the process comes first: a file system of a user's, which may never answer, is not
// looked at for a process that is not believed anyway.
func (n *node) vouch(p *Process) error {
	before, parent, err := rightsOf(p.dir)
	if err != nil {
		return errGone
	}
	user, err := fileAt(int(p.dir.Fd()), "ns/user")
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return errGone
	}
	groups, err := cgroup.In(p.dir)
	if err != nil {
		return errGone
	}
	pod, podErr := cgroup.PodOf(groups)
	podErr = errors.Join(n.entered, podErr)
	inPod := before.netAdmin && user == n.owner && (n.owner != fileID{} || n.user == fileID{}) && podErr == nil
	switch {
	case inPod:
	case before.uids != [4]uint32{} && !before.netAdmin:
		return fmt.Errorf("it runs as user %d without CAP_NET_ADMIN", before.uids[0])
	case before.uids != [4]uint32{}:
		return fmt.Errorf("it runs as user %d, and %w", before.uids[0], podErr)
	case user != n.user:
		return errors.New("it is in a user namespace of its own")
	case cgroup.BelowPods(groups) && !before.netAdmin: // whatever its root directory is: it may have changed that
		return errors.New("it is in a pod without CAP_NET_ADMIN")
	case cgroup.BelowPods(groups):
		return fmt.Errorf("it is in a pod, and %w", podErr)
	case n.noRoot != nil:
		return fmt.Errorf("it is in no pod, and the node's root directory is not known: %w", n.noRoot)
	}
	if !inPod {
		root, err := fileAt(int(p.dir.Fd()), "root")
		switch {
		case err != nil:
			return errGone
		case root != n.root && !before.netAdmin:
			return errors.New("it is in a container without CAP_NET_ADMIN")
		case root != n.root:
			return fmt.Errorf("it is in a container, and %w", podErr)
		}
	}
	if err := before.executable(p.dir); err != nil {
		return errGone
	}
	capabilities, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d/exe", p.dir.Fd()), "security.capability", nil)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.EOPNOTSUPP):
		capabilities = 0
	case err != nil:
		return fmt.Errorf("whether its executable has capabilities is not known: %w", err)
	}
	if after, err := factsOf(p.dir); err != nil || after != before {
		return errGone
	}
	switch {
	case before.mode&(unix.S_ISUID|unix.S_ISGID) != 0 || capabilities > 0:
		return errors.New("its executable gives rights to whoever runs it")
	case !inPod && (before.owner != 0 || before.mode&0o022 != 0):
		return errors.New("its executable can be written by others than root")
	case inPod:
		p.PodUID = pod
	}
	p.facts, p.parent, p.Cgroup = before, parent, cgroup.Line(groups)
	return nil
}

// facts are what must not change while a process is looked at.
type facts struct {
	started  string // in ticks of the clock (proc_pid_stat(5), field 22)
	exe      fileID
	mode     uint32 // of the executable
	owner    uint32 // of the executable
	uids     [4]uint32
	netAdmin bool // CAP_NET_ADMIN is effective
}

// fileID is which file it is.
type fileID struct{ device, inode uint64 }

// factsOf reads them.
func factsOf(dir *os.File) (f facts, err error) {
	if f, _, err = rightsOf(dir); err == nil {
		err = f.executable(dir)
	}
	return f, err
}

// rightsOf is factsOf without the executable, of which the kernel would ask a file system; and the number of the
// process's parent, which may change.
func rightsOf(dir *os.File) (f facts, parent int, err error) {
	stat, err := readAt(dir, "stat", maxText)
	if err != nil {
		return f, 0, err
	}
	// The name, in brackets, may have any character in it; the state after it is the third field.
	fields := strings.Fields(string(stat[max(bytes.LastIndexByte(stat, ')')+1, 0):]))
	const state, started = 3, 22
	if len(fields) <= started-state {
		return f, 0, errors.New("/proc/PID/stat is cut short")
	}
	f.started = fields[started-state]
	status, err := readAt(dir, "status", maxText)
	if err != nil {
		return f, 0, err
	}
	parent, err = f.status(string(status))
	return f, parent, err
}

// executable adds which file the process executes.
func (f *facts) executable(dir *os.File) error {
	var exe unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), "exe", &exe, 0)
	f.exe, f.mode, f.owner = fileID{exe.Dev, exe.Ino}, exe.Mode, exe.Uid
	return err
}

// status reads /proc/PID/status (proc_pid_status(5)), and returns the number of the parent.
func (f *facts) status(text string) (parent int, err error) {
	read := map[string]bool{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		words := strings.Fields(value)
		var err error
		switch key {
		case "PPid":
			parent, err = strconv.Atoi(strings.TrimSpace(value))
		case "Uid":
			if len(words) != len(f.uids) {
				return 0, errors.New("/proc/PID/status has no four user IDs")
			}
			for i, w := range words {
				id, bad := strconv.ParseUint(w, 10, 32)
				f.uids[i], err = uint32(id), errors.Join(err, bad)
			}
		case "CapEff":
			set, bad := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			f.netAdmin, err = set&(1<<unix.CAP_NET_ADMIN) != 0, bad
		default:
			continue
		}
		if err != nil || read[key] {
			return 0, fmt.Errorf("/proc/PID/status: the line %s cannot be read", key)
		}
		read[key] = true
	}
	if len(read) != 3 {
		return 0, errors.New("/proc/PID/status has no PPid, Uid or CapEff")
	}
	return parent, nil
}

// ownerOf returns which user namespace has a namespace, by its file (ioctl_ns(2), NS_GET_USERNS); zero where the kernel
// does not tell.
func ownerOf(path string) fileID {
	f, err := os.Open(path)
	if err != nil {
		return fileID{}
	}
	defer f.Close()
	return ownerBy(f)
}

// ownerBy is ownerOf by an open file. Of a namespace that this process's own does not contain the kernel does not tell.
func ownerBy(namespace *os.File) fileID {
	fd, err := unix.IoctlRetInt(int(namespace.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return fileID{}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return fileID{}
	}
	return fileID{st.Dev, st.Ino}
}

// OfNode reports whether a network namespace is of the node's user namespace: one that only root of the node can have
// made.
func OfNode(namespace *os.File) bool {
	user, err := fileAt(unix.AT_FDCWD, "/proc/self/ns/user")
	return errors.Is(err, unix.ENOENT) || err == nil && ownerBy(namespace) == user
}

// commOf returns how a process calls itself.
func commOf(dir *os.File) string {
	data, _ := readAt(dir, "comm", maxText)
	return string(bytes.TrimSpace(data))
}

// argsOf returns the command line of a process.
func argsOf(dir *os.File) []string {
	data, _ := readAt(dir, "cmdline", maxArgs)
	if len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
}
