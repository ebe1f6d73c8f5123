// SPDX-License-Identifier: Apache-2.0

package names

import "github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"

// within runs f in the network namespace of a pod.
func within(pod podns.Pod, f func() error) error {
	ns, err := podns.Find(pod)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Within(f)
}
