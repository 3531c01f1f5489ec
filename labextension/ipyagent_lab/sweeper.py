"""What nobody else does when no kernel is there: the watchdog of the store.

Every second it looks at the sessions whose log says that a task runs (has its holder gone?), and at the unfinished ones that
nobody runs (has an approval expired, does a request wait in the inbox?).  Whatever there is to record, `control.attend`
records: the sweeper only notices.  Nothing a session does ends the loop; one that cannot be attended is left alone until it
changes, or for a while.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from ipyagent_lab.index import Index
from ipyagent_lab.reading import DAMAGED
from ipyagent_sessions.agent import abandoned
from ipyagent_sessions.clock import Clock
from ipyagent_sessions.errors import IpyagentError, LeaseHeld, NotFound
from ipyagent_sessions.events import seconds_of
from ipyagent_sessions.lifecycle import LOST, TaskState
from ipyagent_sessions.run import control
from ipyagent_sessions.serving.following import silent_since
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

TICK_S: Final = 1.0
BUDGET: Final = 200
"""How many sessions are looked at in one tick; when there are more they take turns, the running ones first."""
_ROTA: Final = 20
_REST_S: Final = 30.0
BY: Final = "server"


class Case(Struct):
    """A session to look at, as the index has it."""

    session_id: str
    logged: str
    needs_you: bool
    seq: int


class Seen(Struct):
    """What was seen of it.  `state` and `silent_since` are those of a row; `attended` whether something was recorded."""

    session_id: str
    state: str | None = None
    silent_since: float | None = None
    attended: bool = False
    problem: str = ""


class Sweeper:
    """`look` runs a blocking function in a thread, `seen` is called on the event loop with what was noteworthy."""

    def __init__(
        self,
        store: Store,
        index: Index,
        look: Callable[[Callable[[], list[Seen]]], Awaitable[list[Seen]]],
        seen: Callable[[list[Seen]], None],
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self.store = store
        self._index = index
        self._look = look
        self._seen = seen
        self._clock = clock
        self._log = log
        self._turn = 0
        self._rota: list[str] = []
        self._resting: dict[str, tuple[int, float]] = {}
        self._expiry: dict[str, tuple[int, float | None]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.sweep()
            except Exception:  # noqa: BLE001  # the watchdog outlives whatever it meets
                self._log.exception("ipyagent: a sweep failed; the next one follows")
            await self._clock.sleep(TICK_S)

    async def sweep(self) -> list[Seen]:
        """Look once."""
        cases = self._cases()
        if not cases:
            return []
        found = await self._look(lambda: [seen for case in cases if (seen := self._case(case)) is not None])
        if found:
            self._seen(found)
        return found

    def resting(self) -> list[str]:
        """The sessions that could not be attended and are left alone for a while."""
        return list(self._resting)

    def _cases(self) -> list[Case]:
        index = self._index
        chosen = index.running()[:BUDGET]
        waiting = index.waiting()
        room = max(BUDGET - len(chosen), BUDGET // 4)
        if len(waiting) > room:
            self._turn %= len(waiting)
            waiting = [*waiting, *waiting][self._turn : self._turn + room]
            self._turn += room
        # ended ones hold nothing but a request that its asker did not live to see through: a few each tick
        if not self._rota:
            self._rota = list(index.ids())
        rota, self._rota = self._rota[:_ROTA], self._rota[_ROTA:]
        cases: dict[str, Case] = {}
        for session_id in (*chosen, *waiting, *rota):
            entry = index.get(session_id)
            if entry is not None and entry.row.state != DAMAGED:
                cases[session_id] = Case(session_id, entry.logged, entry.row.needs_you > 0, entry.seq)
        for kept in (self._expiry, self._resting):
            for gone in [i for i in kept if i not in index]:
                del kept[gone]
        return list(cases.values())

    # In a thread

    def _case(self, case: Case) -> Seen | None:
        """Look at one session and attend to it if there is something to record.  Raises nothing."""
        session = self.store.session(case.session_id)
        resting = self._resting.get(case.session_id)
        if resting is not None and resting[0] == case.seq and self._clock.monotonic() < resting[1]:
            return None
        try:
            if case.logged == TaskState.RUNNING and session.held():
                return Seen(case.session_id, TaskState.RUNNING.value, silent_since(session.layout))
            if case.logged == TaskState.RUNNING or self._something_waits(session, case):
                return self._attend(session, case)
        except (IpyagentError, OSError) as error:
            return self._trouble(case, error)
        except Exception as error:  # noqa: BLE001  # damage takes forms that nobody foresaw
            self._log.exception("ipyagent: session %s cannot be looked at", case.session_id)
            return self._trouble(case, error)
        return None

    def _something_waits(self, session: Session, case: Case) -> bool:
        if _has_requests(session) or (case.needs_you and self._expired(session, case)):
            return not session.held()
        return False

    def _expired(self, session: Session, case: Case) -> bool:
        known = self._expiry.get(case.session_id)
        if known is None or known[0] != case.seq:
            asks = session.state().execution_state.approvals.values()
            ends = [seconds_of(a.expires_at) for a in asks if a.answer is None and a.expires_at is not None]
            self._expiry[case.session_id] = known = case.seq, min(ends, default=None)
        return known[1] is not None and known[1] <= self.store.clock.now()

    def _attend(self, session: Session, case: Case) -> Seen | None:
        try:
            _ = session.header
            state = control.attend(session, by=BY)
            if state.system_state.status is TaskState.CANCELLED:
                abandoned.end(session, by=BY)
        except LeaseHeld:
            return None  # somebody was quicker
        except NotFound:
            return None  # deleted meanwhile
        self._resting.pop(case.session_id, None)
        return Seen(case.session_id, attended=True)

    def _trouble(self, case: Case, error: Exception) -> Seen:
        if case.session_id not in self._resting:
            self._log.warning("ipyagent: session %s cannot be attended: %s", case.session_id, error)
        self._resting[case.session_id] = case.seq, self._clock.monotonic() + _REST_S
        state = LOST if case.logged == TaskState.RUNNING else None
        return Seen(case.session_id, state, problem=str(error) if isinstance(error, IpyagentError) else type(error).__name__)


def _has_requests(session: Session) -> bool:
    try:
        with os.scandir(session.layout.inbox) as entries:
            return any(e.name.endswith(".json") for e in entries)
    except FileNotFoundError:
        return False
