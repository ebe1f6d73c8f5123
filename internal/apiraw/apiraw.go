// SPDX-License-Identifier: Apache-2.0

// Package apiraw reads what the API server answers to requests for kinds that client-go has no types for.
package apiraw

import (
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// maxMessage bounds what is kept of the server's message, in bytes.
const maxMessage = 4096

// Body returns the body of an answer. The error is that of the API, with the message of the server: client-go decodes
// the Status that a failure has for its body only if it decodes the answer as a whole, and calls it "unknown" otherwise
// (Result.Raw in k8s.io/client-go/rest/request.go).
func Body(r rest.Result) ([]byte, error) {
	data, err := r.Raw()
	if err == nil {
		return data, nil
	}
	var s metav1.Status
	if json.Unmarshal(data, &s) != nil || s.Status != metav1.StatusFailure || s.Message == "" {
		return nil, err
	}
	s.Message = s.Message[:min(len(s.Message), maxMessage)]
	return nil, apierrors.FromObject(&s)
}
