// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Of so many connections none meets one of three endpoints once in ten million times.
	matrixConnections = 40
	// For a connection and its answer: a lost SYN is sent again after a second, and may go elsewhere.
	matrixPatience = 950 * time.Millisecond
)

// connected is what became of connections.
type connected struct {
	made, failed int
	answers      map[string]int // by the pod that answered, or by the error
}

func (c connected) String() string {
	var out []string
	for _, who := range slices.Sorted(maps.Keys(c.answers)) {
		out = append(out, fmt.Sprintf("%d %s", c.answers[who], who))
	}
	return strings.Join(out, ", ")
}

// connect makes connections from a fault's origin, all at once, and reads the answer of each. Where a few fail it does
// so once more and takes the better: what is left of the fault before, in the kernel's tables, is not meant.
func (s *scene) connect(t *testing.T, f *matrixFault) connected {
	t.Helper()
	c := s.connectOnce(t, f)
	if c.failed == 0 || c.failed > matrixConnections/5 {
		return c
	}
	if again := s.connectOnce(t, f); again.failed < c.failed {
		return again
	}
	return c
}

func (s *scene) connectOnce(t *testing.T, f *matrixFault) connected {
	t.Helper()
	space, err := os.Open(s.spaces[f.origin()])
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	network, address, hello := "tcp", s.frontend(f), ""
	switch {
	case f.service == matrixUDP:
		network, hello = "udp", strings.Repeat("x", max(f.size, 1))
	case f.health:
		address = net.JoinHostPort(s.vars["NODE"], s.vars["HEALTH"])
		hello = "GET /healthz HTTP/1.0\r\n\r\n"
	}
	type one struct {
		answer string
		err    error
	}
	results := make(chan one, matrixConnections)
	for range matrixConnections {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
				results <- one{"", err}
				return
			}
			answer, err := exchange(t.Context(), network, address, hello)
			results <- one{answer, err}
		}()
	}
	c := connected{made: matrixConnections, answers: map[string]int{}}
	for range matrixConnections {
		r := <-results
		if r.err != nil {
			c.failed++
			// Without the addresses and ports, which differ.
			parts := strings.Split(r.err.Error(), ": ")
			c.answers[parts[len(parts)-1]]++
		} else {
			c.answers[r.answer]++
		}
	}
	return c
}

// exchange connects, says hello where there is one, and returns the first line of the answer.
func exchange(ctx context.Context, network, address, hello string) (string, error) {
	end := time.Now().Add(matrixPatience)
	dialer := net.Dialer{Deadline: end}
	c, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(end); err != nil {
		return "", err
	}
	if hello != "" {
		if _, err := io.WriteString(c, hello); err != nil {
			return "", err
		}
	}
	buffer := make([]byte, 200)
	n, err := c.Read(buffer)
	if n == 0 {
		return "", err
	}
	line, _, _ := strings.Cut(string(buffer[:n]), "\n")
	return strings.TrimSpace(line), nil
}
