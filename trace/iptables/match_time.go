// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// timeMatch is -m time (struct xt_time_info of uapi/linux/netfilter/xt_time.h). Its dates and times are of UTC, or with
// kernelZone of the kernel's time zone.
type timeMatch struct {
	dateStart, dateStop time.Time
	dayStart, dayStop   int // seconds since midnight
	weekdays, monthdays uint32
	contiguous          bool
	kernelZone          bool
}

// secondsPerDay is the number of seconds of a day, which the kernel takes to be the same for all.
const secondsPerDay = 24 * 60 * 60

// The masks that contain all days: bit 1 is Monday, or the first of the month.
const (
	allWeekdays  = 0xfe
	allMonthdays = 0xfffffffe
)

// noTime is why a match with a time is not known.
const noTime = "the time at which the node was read was not collected (time.txt)"

// timeOf reads the options of -m time, as the kernel evaluates them by the node's clock.
func timeOf(_ *ruleSpec, opts []option, text string) (netfilter.Op, bool) {
	m := timeMatch{ // time_init of extensions/libxt_time.c
		dateStart: time.Unix(0, 0), dateStop: time.Unix(math.MaxInt32, 0), dayStop: secondsPerDay - 1,
		weekdays: allWeekdays, monthdays: allMonthdays,
	}
	seen := map[string]bool{}
	for i := range opts {
		o := &opts[i]
		if seen[o.name] || !m.option(o) {
			return nil, false
		}
		seen[o.name] = true
	}
	why := noTime
	if m.kernelZone {
		why = "the time at which the node was read, or the kernel's time zone, was not collected (time.txt): " + text
	}
	return op.Conditions([]cond{func(c *netfilter.Context) truth { return m.holds(c.Host.Clock()) }}, why), true
}

// option reads an option; false for one that is not known.
func (m *timeMatch) option(o *option) (ok bool) {
	switch o.name {
	case "--contiguous", "--kerneltz", "--localtz", "--utc":
		m.contiguous = m.contiguous || o.name == "--contiguous"
		m.kernelZone = m.kernelZone || o.name == "--kerneltz" || o.name == "--localtz"
		return len(o.args) == 0 && !o.not
	}
	arg, one := o.arg()
	if !one || o.not && o.name != "--weekdays" && o.name != "--monthdays" {
		return false
	}
	switch o.name {
	case "--datestart":
		m.dateStart, ok = date(arg)
	case "--datestop":
		m.dateStop, ok = date(arg)
	case "--timestart":
		m.dayStart, ok = timeOfDay(arg)
	case "--timestop":
		m.dayStop, ok = timeOfDay(arg)
	case "--weekdays":
		if m.weekdays, ok = days(arg, weekday); o.not {
			m.weekdays ^= allWeekdays
		}
	case "--monthdays":
		if m.monthdays, ok = days(arg, monthday); o.not {
			m.monthdays ^= allMonthdays
		}
	}
	return ok
}

// holds is time_mt of net/netfilter/xt_time.c.
func (m *timeMatch) holds(c host.Clock) truth {
	if c.Now.IsZero() || m.kernelZone && !c.ZoneKnown {
		return maybe
	}
	now := c.Now.UTC().Truncate(time.Second)
	if m.kernelZone {
		now = now.Add(-time.Duration(c.Zone) * time.Minute)
	}
	if now.Before(m.dateStart) || now.After(m.dateStop) {
		return no
	}
	of := int(now.Sub(now.Truncate(secondsPerDay*time.Second)) / time.Second)
	if m.dayStart < m.dayStop {
		if of < m.dayStart || of > m.dayStop {
			return no
		}
	} else {
		if of < m.dayStart && of > m.dayStop {
			return no
		}
		if m.contiguous && of <= m.dayStop {
			now = now.Add(-secondsPerDay * time.Second) // the day on which the time began
		}
	}
	isoWeekday := (int(now.Weekday())+6)%7 + 1 // Monday is 1
	return op.Is(m.weekdays&(1<<isoWeekday) != 0 && m.monthdays&(1<<now.Day()) != 0)
}

// dateForms are YYYY[-MM[-DD[Thh[:mm[:ss]]]]] (time_parse_date).
var dateForms = []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02T15", "2006-01-02", "2006-01", "2006"}

func date(s string) (time.Time, bool) {
	for _, form := range dateForms {
		if t, err := time.Parse(form, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// timeOfDay reads hh:mm[:ss] (time_parse_minutes).
func timeOfDay(s string) (seconds int, ok bool) {
	for _, form := range []string{"15:04:05", "15:04"} {
		if t, err := time.Parse(form, s); err == nil {
			return t.Hour()*3600 + t.Minute()*60 + t.Second(), true
		}
	}
	return 0, false
}

// days reads a list of days as a mask.
func days(list string, of func(string) (int, bool)) (mask uint32, ok bool) {
	for s := range strings.SplitSeq(list, ",") {
		n, ok := of(s)
		if !ok {
			return 0, false
		}
		mask |= 1 << n
	}
	return mask, true
}

func monthday(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && 1 <= n && n <= 31
}

// weekdayNames are the names that iptables-save prints.
var weekdayNames = []string{"", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}

func weekday(s string) (int, bool) {
	n := slices.Index(weekdayNames, s)
	if n < 0 {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			return 0, false
		}
	}
	return n, 1 <= n && n <= 7
}
