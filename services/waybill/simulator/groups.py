"""Consumer groups as a broker with the new protocol coordinates them, and what it checks when an offset comes.

It checks the member and its epoch, not who owns the partition: whoever is a member at the current epoch may commit
for any partition. An epoch that is older is taken for partitions the member has had since, and refused for others.

Signs of life are not sent: a member of a process that stands still is put out after the session time-out.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, Protocol

from waybill.simulator.process import SimProcess
from waybill.simulator.timeline import Timeline
from waybill.simulator.trace import Trace

__all__ = ["Client", "Groups", "Membership", "Notice"]

#: How long a notice travels, at least and at most.
_NOTICE_S: Final = (0.005, 0.15)


class Membership(NamedTuple):
    """What a client proves its membership with, as it was when it was captured."""

    group: str
    member: str
    epoch: int


class Notice(NamedTuple):
    """What a member learns: `assign`, `revoke` or `lost`, the partitions, and its membership from now on."""

    kind: str
    partitions: tuple[int, ...]
    membership: Membership


class Client(Protocol):
    """A member's end of the wire."""

    process: SimProcess

    def notice(self, notice: Notice) -> None:
        """Learn what the coordinator says."""
        ...


@dataclass(slots=True, eq=False)
class Member:
    """One member, as the coordinator sees it."""

    name: str
    group: str
    client: Client
    life: int
    epoch: int = 0
    #: When the last notice arrives: they keep their order.
    told_at: float = 0.0
    #: Partition → the epoch at which it was given.
    owned: dict[int, int] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)
    is_revoking: bool = False


class Group:
    """One group on one topic."""

    def __init__(self, name: str, partitions: int) -> None:
        self.name, self.partitions = name, partitions
        self.epoch = 0
        self.members: dict[str, Member] = {}

    def spread(self, rng: Random | None = None) -> None:
        """Decide who shall have what: evenly, keeping what can be kept, or at random."""
        self.epoch += 1
        members = list(self.members.values())
        for member in members:
            member.wanted = set()
        if not members:
            return
        if rng is not None:
            for partition in range(self.partitions):
                rng.choice(members).wanted.add(partition)
            return
        most = -(-self.partitions // len(members))
        left: deque[int] = deque()
        for partition in range(self.partitions):
            owner = next((member for member in members if partition in member.owned), None)
            if owner is not None and len(owner.wanted) < most:
                owner.wanted.add(partition)
            else:
                left.append(partition)
        while left:
            min(members, key=lambda member: (len(member.wanted), member.name)).wanted.add(left.popleft())


class Groups:
    """All coordinators."""

    def __init__(self, timeline: Timeline, rng: Random, trace: Trace, session_s: float) -> None:
        self._timeline, self._rng, self._trace = timeline, rng, trace
        self._session_s = session_s
        self._groups: dict[str, Group] = {}
        self._count = 0

    def create(self, group: str, partitions: int) -> None:
        """Know a group."""
        self._groups[group] = Group(group, partitions)

    def members(self) -> list[tuple[str, str]]:
        """Return all (group, member)."""
        return [(group.name, member) for group in self._groups.values() for member in group.members]

    # What clients ask

    def join(self, group: str, client: Client) -> None:
        """Become a member; an assignment follows."""
        found = self._groups[group]
        self._count += 1
        name = f"{client.process.name}-{self._count}"
        found.members[name] = Member(name, group, client, client.process.life)
        self._trace("groups", f"{name} joins {group}")
        self._rebalance(found)

    def leave(self, group: str, client: Client) -> None:
        """Be no member any more, also one that has not learned yet that it is."""
        found = self._groups[group]
        left = [member.name for member in found.members.values() if member.client is client]
        for name in left:
            del found.members[name]
            self._trace("groups", f"{name} leaves {group}")
            self._rebalance(found)

    def gave_back(self, group: str, member: str, partitions: Sequence[int]) -> None:
        """Learn that a member let partitions go."""
        found = self._groups[group]
        known = found.members.get(member)
        if known is not None:
            for partition in partitions:
                known.owned.pop(partition, None)
            known.is_revoking = False
            self._reconcile(found)

    def accepts(self, membership: object, partition: int) -> bool:
        """Whether an offset with this proof is taken. Nobody asks whose partition it is."""
        assert isinstance(membership, Membership)
        member = self._groups[membership.group].members.get(membership.member)
        if member is None or membership.epoch > member.epoch:
            return False
        since = member.owned.get(partition, member.epoch)
        return membership.epoch >= since

    def owns(self, membership: Membership, partition: int) -> bool:
        """Whether a member has a partition now; known to the simulator's laws only."""
        member = self._groups[membership.group].members.get(membership.member)
        return member is not None and partition in member.owned

    # What happens to members

    def stopped(self, process: SimProcess) -> None:
        """Put out the members of a process that shows no sign of life, unless it does in time."""
        for group in self._groups.values():
            for member in list(group.members.values()):
                if member.client.process is process:
                    self._timeline.after(self._session_s, self._miss, group, member)

    def woke(self, process: SimProcess) -> None:
        """Do nothing: whoever was put out learns it from the notice that waits for it."""

    def evict(self, group: str, member: str, told_after_s: float) -> None:
        """Put out a member that lives and learns it late."""
        found = self._groups[group]
        known = found.members.pop(member, None)
        if known is not None:
            self._trace("groups", f"{member} is put out of {group}")
            self._say(known, "lost", tuple(known.owned), told_after_s)
            self._rebalance(found)

    def shuffle(self, group: str) -> None:
        """Spread a group's partitions anew, at random."""
        found = self._groups[group]
        found.spread(self._rng)
        self._trace("groups", f"{group} is spread anew")
        self._reconcile(found)

    def _miss(self, group: Group, member: Member) -> None:
        process = member.client.process
        if not (process.is_running and process.life == member.life):
            self.evict(group.name, member.name, self._notice_s())

    def _rebalance(self, group: Group) -> None:
        group.spread()
        self._reconcile(group)

    def _reconcile(self, group: Group) -> None:
        """Bring every member one step nearer to what it shall have."""
        held = {partition for member in group.members.values() for partition in member.owned}
        for member in group.members.values():
            going = tuple(sorted(set(member.owned) - member.wanted))
            if going:
                if not member.is_revoking:
                    member.is_revoking = True
                    self._say(member, "revoke", going)
                continue
            coming = tuple(sorted(member.wanted - held))
            if coming or member.epoch != group.epoch:
                member.epoch = group.epoch
                member.owned.update(dict.fromkeys(coming, group.epoch))
                held.update(coming)
                self._say(member, "assign", coming)

    def _say(self, member: Member, kind: str, partitions: tuple[int, ...], after_s: float | None = None) -> None:
        notice = Notice(kind, partitions, Membership(member.group, member.name, member.epoch))
        arrival = self._timeline.now + (self._notice_s() if after_s is None else after_s)
        member.told_at = max(member.told_at, arrival)
        self._timeline.at(member.told_at, member.client.notice, notice)

    def _notice_s(self) -> float:
        return self._rng.uniform(*_NOTICE_S)
