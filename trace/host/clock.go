// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Clock is the time at which a node was read, by the node's own clock.
type Clock struct {
	// Now is zero where it was not collected.
	Now time.Time
	// Zone is the kernel's own time zone, which settimeofday(2) sets, as minutes west of UTC (sys_tz.tz_minuteswest).
	// It is not that of /etc/localtime. ZoneKnown is false where it was not collected.
	Zone      int
	ZoneKnown bool
}

// Clock returns the time at which the node was read.
func (n *Network) Clock() Clock { return n.clock }

// zoneKey begins the line of time.txt that has the kernel's time zone.
const zoneKey = "tz_minuteswest="

// maxZone is how many minutes the kernel accepts on either side of UTC (do_sys_settimeofday64 in kernel/time/time.c).
const maxZone = 15 * 60

// FormatClock returns a Clock as the contents of time.txt.
func FormatClock(c Clock) []byte {
	out := c.Now.UTC().Format(time.RFC3339Nano) + "\n"
	if c.ZoneKnown {
		out += zoneKey + strconv.Itoa(c.Zone) + "\n"
	}
	return []byte(out)
}

// readClock reads time.txt: the time in RFC 3339, and optionally the kernel's time zone.
func (n *Network) readClock(data []byte) error {
	lines := strings.Fields(string(data))
	switch {
	case len(lines) == 0:
		return errors.New("it is empty")
	case len(lines) > 2:
		return fmt.Errorf("it has %d lines, and two are known", len(lines))
	}
	var c Clock
	var err error
	if c.Now, err = time.Parse(time.RFC3339, lines[0]); err != nil {
		return fmt.Errorf("%.40q is not a time such as 2006-01-02T15:04:05Z", lines[0])
	}
	if Unterminated(data) {
		return fmt.Errorf("it is cut off in line %d", len(lines))
	}
	if len(lines) == 2 {
		zone, ok := strings.CutPrefix(lines[1], zoneKey)
		if c.Zone, err = strconv.Atoi(zone); !ok || err != nil || c.Zone < -maxZone || c.Zone > maxZone {
			return fmt.Errorf("%.40q is not a %sMINUTES, from -%d to %d", lines[1], zoneKey, maxZone, maxZone)
		}
		c.ZoneKnown = true
	}
	n.clock = c
	return nil
}
