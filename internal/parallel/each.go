// SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"runtime"
	"slices"
	"sync/atomic"
)

// atOnce is how many of a list a goroutine takes at once.
const atOnce = 64

// Each calls a function with each of a list, in as many goroutines as there are processors; worker is asked once for
// the function of each goroutine. The error is that of the first in the list that has one.
func Each[T any](list []T, worker func() func(T) error) error {
	parts := slices.Collect(slices.Chunk(list, atOnce))
	errs := make([]error, len(parts))
	var next atomic.Int64
	var workers Group
	for range min(len(parts), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			do := worker()
			for n := int(next.Add(1)) - 1; n < len(parts); n = int(next.Add(1)) - 1 {
				for _, x := range parts[n] {
					if errs[n] = do(x); errs[n] != nil {
						break
					}
				}
			}
		})
	}
	workers.Wait()
	if at := slices.IndexFunc(errs, func(err error) bool { return err != nil }); at >= 0 {
		return errs[at]
	}
	return nil
}
