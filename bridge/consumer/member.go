package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fatal returns what ends the process for a group error that it cannot mend, and
// nil for one that rejoining does, which the client does by itself.
func (c *Consumer) fatal(err error) error {
	end := func(setting, value, what string) error {
		return fmt.Errorf("%s=%s: %s: %w", setting, value, what, err)
	}
	switch {
	case errors.Is(err, kerr.FencedInstanceID):
		return end("KAFKA_INSTANCE_ID", c.cfg.InstanceID, "another process has joined group "+c.cfg.Group+" with it")
	case errors.Is(err, kerr.UnreleasedInstanceID):
		return end("KAFKA_INSTANCE_ID", c.cfg.InstanceID, "another member of group "+c.cfg.Group+" holds it")
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		what := "members of group " + c.cfg.Group + " use another one"
		if c.cfg.GroupProtocol == ProtocolClassic {
			what += "; if that is range, set eager"
		}
		return end("KAFKA_GROUP_PROTOCOL", c.cfg.GroupProtocol, what)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return end("KAFKA_GROUP", c.cfg.Group, "reading as this group is not allowed")
	case errors.Is(err, kerr.InvalidGroupID):
		return end("KAFKA_GROUP", c.cfg.Group, "the broker does not take the name")
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return end("KAFKA_SESSION_TIMEOUT", c.cfg.SessionTimeout.String(), "the broker allows no such session")
	}
	return nil
}

// takeOver releases our instance ID from a member that holds it: this process
// before it was killed. The classic protocol lets the newcomer take its place;
// KIP-848 refuses us until that session is over, and then gives our partitions
// to others. If the member is another process after all, that one ends, as it
// does with the classic protocol.
func (c *Consumer) takeOver(ctx context.Context) {
	if c.cfg.InstanceID == "" || c.cfg.GroupProtocol != ProtocolConsumer {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{c.cfg.Group}
	resp, err := req.RequestWith(ctx, c.admin)
	if err != nil {
		c.log.Warn("look for the former holder of the instance ID", "group", c.cfg.Group, "instance", c.cfg.InstanceID, "error", err)
		return
	}
	for _, group := range resp.Groups { // none if there is no such group
		for _, m := range group.Members {
			if m.InstanceID != nil && *m.InstanceID == c.cfg.InstanceID && m.MemberEpoch >= 0 {
				c.release(ctx, m.MemberID)
			}
		}
	}
}

// leaveStatic tells the group that this static member will be back. The client
// (1.22.3) says so without the instance ID, which Apache Kafka refuses; and
// while it holds on to the old member, it refuses the one that comes back. The
// classic protocol has no such message.
func (c *Consumer) leaveStatic(ctx context.Context) {
	member, epoch := c.client.GroupMetadata()
	if c.cfg.InstanceID == "" || c.cfg.GroupProtocol != ProtocolConsumer || epoch <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	c.release(ctx, member)
}

// release says for a member that has our instance ID that it is away for a
// while: its partitions wait for the one that joins with the ID.
func (c *Consumer) release(ctx context.Context, member string) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = c.cfg.Group, member, &c.cfg.InstanceID, -2
	resp, err := req.RequestWith(ctx, c.admin)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		c.log.Warn("release the instance ID", "group", c.cfg.Group, "instance", c.cfg.InstanceID, "error", err)
	}
}

// leaveAlone tells the group that this member is gone, without the client, which
// waits for a callback. A static member keeps its place: the process that comes
// after it takes that.
func (c *Consumer) leaveAlone(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	member, _ := c.client.GroupMetadata()
	var err error
	switch {
	case member == "" || c.cfg.InstanceID != "":
		err = errors.New("there is nothing to leave with")
	case c.cfg.GroupProtocol == ProtocolConsumer:
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch = c.cfg.Group, member, -1
		var resp *kmsg.ConsumerGroupHeartbeatResponse
		if resp, err = req.RequestWith(ctx, c.admin); err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
	default:
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group, req.MemberID = c.cfg.Group, member // version 0 to 2
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = member
		req.Members = append(req.Members, m)
		var resp *kmsg.LeaveGroupResponse
		if resp, err = req.RequestWith(ctx, c.admin); err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
			for _, left := range resp.Members {
				err = errors.Join(err, kerr.ErrorForCode(left.ErrorCode))
			}
		}
	}
	if err != nil {
		// The group gives our partitions away after the session timeout.
		c.log.Error("group not left in time", "group", c.cfg.Group, "error", err)
	}
}
