// SPDX-License-Identifier: Apache-2.0

package gen

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

var (
	seed     = flag.Uint64("seed", fromEnv("ORACLE_SEED", 0), "seed of the first cluster (ORACLE_SEED); 0 takes the time")
	services = flag.Uint64("services", fromEnv("ORACLE_SERVICES", 3000), "Services to generate in all (ORACLE_SERVICES)")
	size     = flag.Int("size", 60, "Services of one cluster")
)

func fromEnv(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// faulty are the seeds of clusters that once showed a fault: they come first, beside those that were asked for.
//   - ...619738: without kube-proxy's words NodePorts that were served nowhere ruled out the version, in ipvs mode
var faulty = []uint64{1795411147475619738}

// shown is how many differences a failing test prints.
const shown = 20

// Proxy makes a kube-proxy of its version write its rules for a cluster.
type Proxy func(w *Cluster) (Rules, error)

// Run is the test of one version: it generates clusters, lets kube-proxy write its rules, and compares. A failure names
// the seed that makes the cluster again: -seed N -services 60.
func Run(t *testing.T, version, mode string, proxy Proxy, gates ...string) {
	t.Helper()
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	var total Result
	of := uint64(0) // Services
	start := time.Now()
	var proxied time.Duration
	for i := uint64(0); of < *services; i++ {
		at := first + i - min(i, uint64(len(faulty)))
		if i < uint64(len(faulty)) {
			at = faulty[i]
		}
		w := New(at, *size, version, mode, gates...)
		t0 := time.Now()
		rules, err := proxy(w)
		proxied += time.Since(t0)
		if err == nil && rules.empty(mode) {
			err = errors.New("kube-proxy wrote no rules")
		}
		if err != nil {
			t.Fatalf("seed %d: %v", w.Seed, err)
		}
		r, err := Check(w, rules)
		if err != nil {
			t.Fatalf("seed %d: %v", w.Seed, err)
		}
		total.Add(r)
		if i >= uint64(len(faulty)) {
			of += uint64(max(*size, 1))
		}
		if len(total.Differences) > shown {
			break
		}
	}
	for i, d := range total.Differences {
		if i == shown {
			t.Logf("and %d more", len(total.Differences)-i)
			break
		}
		t.Error(d)
	}
	t.Logf("%s, %s mode, seed %d: %d Services, %d frontends, %d paths %v, %d of them unsure; %d paths judged, "+
		"%d without kube-proxy's words, %d of them name an unknown value; "+
		"%d differences; %s, of it kube-proxy %s", version, mode, first, total.Services, total.Frontends, total.Paths,
		fmt.Sprint(total.Actions), total.Unsure, total.Judged, total.Silent, total.SilentUnknown, len(total.Differences),
		time.Since(start).Round(time.Millisecond), proxied.Round(time.Millisecond))
}
