// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// folderName is what a node's folder may be called: a DNS subdomain, as the API server has them (RFC 1123), or the
// like in capitals. Nothing in it leads out of the archive or gives orders to the terminal of whoever lists it.
var folderName = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// device are the names that Windows keeps for devices, with any extension (Naming Files, Paths, and Namespaces).
var device = lazyregexp.New(`(?i)^(con|prn|aux|nul|com\d|lpt\d)(\.|$)`)

// CheckNodeName says, as an error, that the name of a node is not one of a folder in an archive that can be unpacked on
// every system.
func CheckNodeName(name string) error {
	if !folderName().MatchString(name) {
		return fmt.Errorf("its name %.300q is not one of a folder: letters, digits, '.', '_' and '-' are, up to 253, "+
			"with a letter or a digit at both ends", name)
	}
	if device().MatchString(name) {
		return fmt.Errorf("its name %q is one of a device on Windows, where the archive could not be unpacked", name)
	}
	return nil
}
