"""Gap resolutions of one partition: written in the place of what ended, and once more for a listener that forgot.

A lane whose head ended stands until its resolution is a row; then it loads its rows anew, and the resolution is its
head like any delivery: sent, tried again, acknowledged. Only then comes the next number.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from waybill.contracts.envelope import GAP_RESOLUTION_TYPE, GapResolution, render_gap_resolution
from waybill.delivery.core.gaps import LIFE, entry_of, goes_on, hole_id, resolution_id
from waybill.delivery.core.holding import end_head, reload, wait_for_rows
from waybill.delivery.core.lanes import Item, Lane
from waybill.delivery.core.stored import pack_record
from waybill.delivery.desk import Desk, Owner
from waybill.delivery.resolutions.statements import ResolutionRow, ResolutionStore
from waybill.delivery.rows import item_of, surface
from waybill.delivery.store import Feed
from waybill.infra.log import get_logger
from waybill.infra.patience import Patience
from waybill.kernel.errors import FencedError, InvariantBroken, TransientError
from waybill.kernel.ids import Aggregate

__all__ = ["Resolver"]

#: Ends that one resolution tells again.
_MANY: Final = 200


class Resolver:
    """Writes the gap resolutions of one partition, one job after the other; lives on the loop."""

    def __init__(self, desk: Desk, owner: Owner, identify: Callable[[Item], None]) -> None:
        self._desk, self._owner, self._identify = desk, owner, identify
        self._store = ResolutionStore(desk.tools.store)
        self._jobs: deque[tuple[Lane, Callable[[], Awaitable[None]]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._log = get_logger("delivery").bind(tenant=desk.tenant, destination=desk.target.name)

    def goes_on(self, item: Item) -> bool:
        """Whether the lane goes on by itself behind a row that ended without acknowledgement."""
        self._identify(item)
        target = self._desk.target
        config, is_asked = target.config, target.config.status_query is not None
        return goes_on(item, config.on_unsettled, target.halting_on_expiry, is_asked=is_asked)

    def head_ended(self, lane: Lane, item: Item) -> None:
        """Take the head of a lane that ended without acknowledgement, and go on behind it."""
        end_head(self._owner.lanes, lane, item)
        self._do(lane, lambda: self.resolve([item]))

    def row_ended(self, lane: Lane, item: Item) -> None:
        """Go on behind a row that ended earlier and still holds a lane without a head."""
        wait_for_rows(self._owner.lanes, lane)
        self._do(lane, lambda: self.resolve([item]))

    def retell(self, lane: Lane, item: Item, expected: int) -> None:
        """Tell a listener that waits for an earlier number than the head's what became of those between, if they ended.

        The head waits for its next attempt where it is; without an end to tell it is tried again as before.
        """
        end_head(self._owner.lanes, lane, item)
        self._do(lane, lambda: self._retell(lane, item, expected))

    async def resolve(self, items: Sequence[Item]) -> None:
        """Put gap resolutions in the places of rows that ended."""
        now = self._desk.tools.clock.now()
        await self._store.resolve(self._owner.owned, [self._row([item], item, item.version) for item in items], now)

    async def tell_hole(self, aggregate: str, sequence: int) -> None:
        """Tell that a number without a delivery will never come, before what waits behind it."""
        owned = self._owner.owned
        item = Item(0, aggregate, sequence, (aggregate.encode(), [], None))
        item.delivery_id = item.command_id = str(hole_id(owned.tenant, owned.destination, aggregate, sequence))
        await self._store.retell(owned, self._row([item], item, 0), self._desk.tools.clock.now())

    async def _retell(self, lane: Lane, head: Item, expected: int) -> None:
        owned = self._owner.owned
        found = await self._store.told(owned, head.aggregate, expected, head.sequence, _MANY)
        ended = [item_of(Feed(*row)) for row in found]
        if ended:
            self._log.warning("gap.told_again", aggregate=head.aggregate, expected=expected, before=head.sequence)
            row = self._row(ended, head, head.version, first=ended[0].sequence)
            await self._store.retell(owned, row, self._desk.tools.clock.now())
            lane.rows += 1

    def _row(self, ended: Sequence[Item], about: Item, version: int, *, first: int | None = None) -> ResolutionRow:
        """Return the row of one resolution.

        Args:
            ended: what it tells, ascending by sequence.
            about: the delivery it hangs on.
            version: of that delivery's state; no two resolutions hang on the same.
            first: its place in the lane; that of `about` when None.
        """
        now, owned, target = self._desk.tools.clock.now(), self._owner.owned, self._desk.target
        for item in (*ended, about):
            self._identify(item)
        if about.delivery_id is None or about.command_id is None:
            raise InvariantBroken("resolved a delivery that was not looked into")
        identity = resolution_id(about.delivery_id, version)
        gap = GapResolution(
            resolution_id=identity,
            tenant=self._desk.tenant,
            destination=target.name,
            aggregate=Aggregate(about.aggregate),
            source=f"urn:waybill:worker:{owned.tenant}:{owned.destination}",
            issued_at=now,
            config_version=target.recorder.config_version,
            entries=tuple(entry_of(item, now) for item in ended),
        )
        headers: list[tuple[str, bytes | None]] = [
            ("ce_type", GAP_RESOLUTION_TYPE.encode()),
            ("ce_id", about.command_id.encode()),
        ]
        return ResolutionRow(
            resolution_id=str(identity),
            ended_id=about.delivery_id,
            command_id=about.command_id,
            aggregate=about.aggregate,
            sequence=about.sequence if first is None else first,
            record_offset=about.offset,
            expires_at=now + LIFE,
            record=pack_record(about.key, headers, render_gap_resolution(gap)),
        )

    # One job after the other

    def _do(self, lane: Lane, job: Callable[[], Awaitable[None]]) -> None:
        self._jobs.append((lane, job))
        if self._task is None and not self._owner.gone:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(surface)

    async def _run(self) -> None:
        patience = Patience()
        try:
            while self._jobs and not self._owner.gone:
                lane, job = self._jobs[0]
                try:
                    await job()
                except TransientError as error:
                    if patience.failures == 0:
                        self._log.warning("resolutions.waiting", reason=str(error))
                    await patience.wait()
                    continue
                patience.worked()
                self._jobs.popleft()
                if not self._owner.gone:
                    reload(self._owner.lanes, lane)
                    self._owner.pump()
        except FencedError:
            self._owner.refused()
        finally:
            self._task = None
