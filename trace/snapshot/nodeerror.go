// SPDX-License-Identifier: Apache-2.0

package snapshot

// NodeError is why a node could not be read or judged.
type NodeError struct {
	Node string
	Err  error // the reason, which does not name the node
}

// ErrorOf makes a NodeError of a reason; nil of nil. A reason that is a NodeError itself stays as it is.
func ErrorOf(node string, reason error) error {
	if reason == nil {
		return nil
	}
	if _, ok := reason.(*NodeError); ok { //nolint:errorlint // what wraps one says more
		return reason
	}
	return &NodeError{Node: node, Err: reason}
}

// Reason is the text of an error for a reader who knows the node: of a NodeError that is not wrapped, the reason alone.
func Reason(err error) string {
	if e, ok := err.(*NodeError); ok { //nolint:errorlint // what wraps one says more
		return e.Err.Error()
	}
	return err.Error()
}

// Error names the node and the reason: "node worker-1: its kubelet does not answer".
func (e *NodeError) Error() string { return "node " + e.Node + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *NodeError) Unwrap() error { return e.Err }
