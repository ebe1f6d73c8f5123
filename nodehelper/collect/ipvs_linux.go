// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/moby/ipvs"
	"github.com/sirupsen/logrus"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/ipvsadm"
)

// readIPVS lists virtual and real servers as ipvsadm-save -n does. The caller has seen that ip_vs is there: moby/ipvs
// runs modprobe.
func readIPVS(_ context.Context, _ *reader) ([]byte, error) {
	logrus.SetOutput(io.Discard) // moby/ipvs says there that the image has no modprobe
	h, err := ipvs.New("")
	if err != nil {
		return nil, fmt.Errorf("IPVS: %w", err)
	}
	defer h.Close()
	services, err := h.GetServices()
	if err != nil {
		return nil, fmt.Errorf("IPVS: %w", err)
	}
	var out bytes.Buffer
	for _, s := range services {
		out.WriteString(ipvsadm.Virtual(s) + "\n")
		dests, err := h.GetDestinations(s)
		if err != nil {
			return nil, fmt.Errorf("IPVS: the real servers of %s: %w", ipvsadm.Name(s), err)
		}
		for _, d := range dests {
			out.WriteString(ipvsadm.Real(s, d) + "\n")
		}
	}
	return out.Bytes(), nil
}
