// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"runtime"
	heap "runtime/metrics"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// What a pass may take. What it has not judged by then is exported as not judged, and the next pass is due as ever.
const (
	// passTime is for reading the node and for judging it, as the plugin allows for each: 5,000 Services take two seconds
	// of one processor, of which the agent's container may have all.
	passTime = bounds.Call + bounds.Judge
	// passMemory is how many bytes of objects the heap may have: the container may have 512 MiB (deploy/watch), of which
	// the programs that a pass runs, and garbage, need the rest.
	passMemory = 320 << 20
	// memoryCheck is how often the heap is measured during a pass.
	memoryCheck = 50 * time.Millisecond
)

// Why a pass ended before all was judged.
var (
	errPassTime   = errors.New("the pass took longer than " + passTime.String())
	errPassMemory = errors.New("the pass took more than " + bounds.Bytes(passMemory) + " of memory")
	errTooMuch    = errors.New("judging them takes too much")
)

// allServices is that all Services are judged, in the log.
const allServices = "all Services are judged"

// limited returns the context of a pass, which ends with its limits; end has to be called after it.
func (a *Agent) limited(ctx context.Context) (limited context.Context, end func()) {
	ctx, stop := context.WithTimeoutCause(ctx, passTime, errPassTime)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for pause(ctx, memoryCheck) == nil {
			if a.inUse() <= passMemory {
				continue
			}
			runtime.GC()
			if a.inUse() > passMemory {
				cancel(errPassMemory)
			}
		}
	}()
	return ctx, func() { cancel(nil); stop() }
}

// heapInUse is how many bytes of objects the heap has, garbage that was not collected yet among them.
func heapInUse() uint64 {
	sample := []heap.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	heap.Read(sample)
	return sample[0].Value.Uint64()
}
