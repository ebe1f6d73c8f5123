// SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"fmt"
	"sync/atomic"
	"testing"
)

func TestEach(t *testing.T) {
	list := make([]int, 1000)
	for i := range list {
		list[i] = i
	}
	var sum atomic.Int64
	err := Each(list, func() func(int) error {
		return func(n int) error {
			sum.Add(int64(n))
			return nil
		}
	})
	if err != nil || sum.Load() != 499500 {
		t.Errorf("the sum is %d, %v", sum.Load(), err)
	}
	err = Each(list, func() func(int) error {
		return func(n int) error {
			if n%300 == 299 {
				return fmt.Errorf("%d", n)
			}
			return nil
		}
	})
	if err == nil || err.Error() != "299" {
		t.Errorf("%v, want the error of the first", err)
	}
	if err := Each([]int{}, func() func(int) error { return nil }); err != nil {
		t.Error(err)
	}
}
