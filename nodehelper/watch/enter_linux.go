// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// listenerVariable tells the process that it has entered the node's network namespace, and the number of the file
// descriptor of the socket that it listens on.
const listenerVariable = "SVCPROXY_WATCH_LISTENER"

// Enter listens on an address in this process's own network namespace, and has the process enter the node's, of which
// node is the file (/proc/1/ns/net). All that the process does afterwards, it does there; the socket stays where it is.
//
// A process of several threads cannot enter a namespace as a whole (setns(2)). Therefore one thread enters it and then
// executes this program again, with the arguments argv, which ends the others (de_thread in fs/exec.c): Enter then does
// not return, and is called again by the new program, where it returns the socket.
func Enter(address, node string, argv []string) (net.Listener, error) {
	if fd := os.Getenv(listenerVariable); fd != "" {
		return inherited(fd)
	}
	l, err := net.Listen("tcp", address) //nolint:noctx // nothing waits here
	if err != nil {
		return nil, err
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	theirs, err := os.Readlink(node)
	if err != nil {
		return nil, fmt.Errorf("the node's network namespace: %w", err)
	}
	if own == theirs {
		return l, nil
	}
	return nil, again(l, node, argv)
}

// inherited returns the socket that the program was executed with.
func inherited(number string) (net.Listener, error) {
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 0 {
		return nil, fmt.Errorf("%s is %q, which is not a file descriptor", listenerVariable, number)
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	if err := os.Unsetenv(listenerVariable); err != nil { // not for the programs that this one runs
		return nil, err
	}
	return net.FileListener(f)
}

// again executes this program in the network namespace of a file. It returns where that fails.
func again(l net.Listener, node string, argv []string) error {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("%T cannot be passed on", l)
	}
	f, err := tcp.File()
	if err != nil {
		return err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil { // it stays open in the new program
		return err
	}
	ns, err := os.Open(node)
	if err != nil {
		return err
	}
	defer ns.Close()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // not unlocked: nothing else may run on this thread
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot enter the node's network namespace: %w", err)
	}
	env := append(os.Environ(), listenerVariable+"="+strconv.Itoa(int(f.Fd())))
	return fmt.Errorf("cannot execute %s again: %w", program, unix.Exec(program, argv, env))
}
