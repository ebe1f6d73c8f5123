// SPDX-License-Identifier: Apache-2.0

package run

import "fmt"

// The exit codes, the same for every command.
const (
	ExitRight        = 0   // the path is right, by-design refusals included
	ExitMismatch     = 1   // at least one mismatch
	ExitUsage        = 2   // wrong usage, or input that cannot be read
	ExitNotInspected = 3   // something could not be inspected: no claim is made
	ExitWarning      = 4   // only warnings
	ExitInterrupted  = 130 // by a signal
)

// ExitError ends the program with an exit code. Where Err is nil, all there is to say has been printed.
type ExitError struct {
	Code int
	Err  error
}

// Error is the text of Err.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// Usagef makes the error of wrong usage, or of input that cannot be read: exit code 2.
func Usagef(format string, args ...any) error {
	return &ExitError{ExitUsage, fmt.Errorf(format, args...)}
}

// NotInspected makes the error of what could not be read or done on a node or in the cluster: exit code 3.
func NotInspected(err error) error { return &ExitError{ExitNotInspected, err} }
