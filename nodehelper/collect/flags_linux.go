// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// readFlags reads from the command line of kube-proxy, or of the program that contains it, the flags that decide what
// is programmed, and no others: they may be secrets.
func readFlags(_ context.Context, r *reader) ([]byte, error) {
	_, program, args := embeddingProcess()
	if r.proxy != nil {
		program, args = kubeproxy.Process, r.proxy.args
	}
	if program == "" {
		return nil, errAbsent
	}
	var out bytes.Buffer
	out.WriteString(program + "\n")
	for _, f := range kubeproxy.PickFlags(program, args) {
		if safetext.HasUnsafe(f) {
			return nil, errors.New("kube-proxy's command line has characters that no flag has")
		}
		out.WriteString(f + "\n")
	}
	if out.Len() > bounds.Config {
		return nil, bounds.TooLarge("kube-proxy's command line", bounds.Config)
	}
	return out.Bytes(), nil
}

// embeddingProcess finds the program that contains kube-proxy, in this network namespace: the one with the lowest
// number, which has started the others. 0 and "" where there is none.
func embeddingProcess() (pid int, program string, args []string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, "", nil
	}
	lowest := 0
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || lowest != 0 && pid > lowest {
			continue
		}
		data, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil {
			continue
		}
		line := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
		if name := filepath.Base(line[0]); slices.Contains(kubeproxy.Embedding, name) && sameNetwork(e.Name()) {
			lowest, program, args = pid, name, line[1:]
		}
	}
	return lowest, program, args
}
