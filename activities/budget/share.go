package budget

import "time"

// share replaces the grant in force and what is known of an outage. Its limit
// holds for new permits from now on.
func (l *limiter) share(g grant, open bool, cause string) (turned bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.id = l.grant.id + 1
	l.grant = g
	if t := time.Now().Add(g.spacing()); t.Before(l.next) {
		l.next = t // it was a smaller limit that set it
	}
	turned = l.setOutage(open, cause)
	l.serve()
	return turned
}

// hold gives no permits until t; a zero t ends it.
func (l *limiter) hold(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heldUntil = t
	l.serve()
}

// usage is what a report to the budget says of a limiter.
type usage struct {
	// held is the most calls that may turn out to have started in a sliding
	// second ending now or later, under the present grant.
	held int
	// demand is how many calls a second it could use.
	demand int
}

func (l *limiter) usage() usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.forget(now)
	// What was granted may be used in full; what was sent or may still be sent
	// counts in full, also where it is more than is granted now.
	u := usage{held: l.open + len(l.sent)}
	if !l.grant.ended(now) && l.grant.left != 0 {
		u.held = max(u.held, l.grant.limit)
	}
	if l.short(now) {
		l.demand.lack(now)
	}
	if l.outage.Open {
		u.demand = l.waiters.Len() // a probe is for somebody who is there to use it
	} else {
		u.demand = l.demand.value(now, l.grant.limit)
	}
	return u
}
