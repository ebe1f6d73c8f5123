// SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"sync/atomic"
	"testing"
)

// A panic of a function comes to whoever waits, once all others have ended.
func TestAPanicComesToWhoeverWaits(t *testing.T) {
	var ended atomic.Int32
	defer func() {
		if got := recover(); got != "a defect" || ended.Load() != 2 {
			t.Errorf("recovered %v, %d others have ended; want a defect, 2", got, ended.Load())
		}
	}()
	var all Group
	all.Go(func() { ended.Add(1) })
	all.Go(func() { panic("a defect") })
	all.Go(func() { ended.Add(1) })
	all.Wait()
	t.Error("Wait returned")
}
