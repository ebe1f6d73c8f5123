// SPDX-License-Identifier: Apache-2.0

package judge

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
	var all together
	all.do(func() { ended.Add(1) })
	all.do(func() { panic("a defect") })
	all.do(func() { ended.Add(1) })
	all.wait()
	t.Error("wait returned")
}
