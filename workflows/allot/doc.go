// Package allot decides which worker may use how much of the budget. It is the
// pure half of workflow Budget: all it knows is a [contract.BudgetState] and the
// time it is told.
//
// # What never happens
//
// Write b(i, t) for the most calls that worker i can have started in a sliding
// second that ends at t. The sum of all b(i, t) never exceeds the budget, but
// for one TTL after the budget was lowered. It follows from three rules.
//
//  1. The lease kept for a worker is at least its b. When a worker asks, it
//     reports b as Held; until the answer arrives its b can only fall, because
//     nothing but an answer raises its share. After the answer b is at most
//     max(Held, granted), and that is the lease. If the answer is lost, or
//     arrives after the worker has given up on it, b stays at most Held.
//  2. A share is granted from what the leases of all others leave free. So a
//     share grows at once within what is free, and shrinks in two steps: a
//     smaller share is granted, and the difference is free only once a later
//     report says that it can no longer be found in any sliding second.
//  3. A lease ends a TTL after it was granted. The worker uses no permit of it any
//     more from two thirds of a TTL after it asked, which was earlier still; and a
//     call that connects by then is sent within [contract.SendWithin] or not at
//     all. So its last call is a second and a half older than the lease's end.
//
// Interleavings that this is for:
//
//   - Worker A shrinks from 10 to 5 and B grows by 5 at once: A has started 10
//     calls just before it got the answer, B starts 5, and that second holds 15.
//     Rule 2 keeps the 5 back until A's next report.
//   - A asks, its request is stuck; it gives up and asks again; the second is
//     answered, then the first is handled. Its Held is older than the share that
//     the second answer raised. A request whose Seq is not greater than the last
//     is refused.
//   - A is granted 5 where it held 10, the answer is lost, and A is silent. It
//     still uses 10 until its older share ends: that is within a TTL of the
//     lease, which is 10.
//   - The budget's run is terminated by hand, or reset to an earlier point: what
//     it granted is forgotten, and still in use. A state without memory, [New],
//     grants nothing for one TTL.
//   - A worker is killed: nobody reports for it. Its demand stops counting soon,
//     so that the others are told to come back the moment its lease ends.
//   - Two Temporal hosts disagree about the time: time never goes back in a
//     state, and a jump forward of less than 4 s lets no share overlap, of less than 0.5 s
//     not even if calls take all of SendWithin to connect.
//
// # Who gets what
//
// Shares are whole calls per second, so they sum to the budget exactly, also
// where it does not divide. They follow demand, max–min fair: nobody gets more
// than it can use while somebody else lacks, and those who lack get equal parts;
// a remainder goes to those who hold most already, so that it stays where it is.
package allot
