"""The heartbeat of a running task: it shows that it is alive, says what it does, and brings in what people ask.

All tasks of a process beat in one thread (`ticker`).  A beat writes `live.json` (at most five times a second, at least once a
heartbeat), looks into the inbox, and samples CPU and memory.  It never touches the log: requests are handed to the task's
loop."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ipyagent_sessions import payloads as p
from ipyagent_sessions.log import inbox, live
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.log.lease import HEARTBEAT
from ipyagent_sessions.run import resources
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.run.ticker import TICKER
from ipyagent_sessions.state import State

if TYPE_CHECKING:
    import psutil

_LIVE_S: Final = 0.2
_LOOP_S: Final = 0.25
"""How often a task's loop is woken to see whether time has brought something."""


class Pulse:
    """Beats from `start` to `stop`.

    `attend` gets requests and returns the ids of those to hand in again; `tick` is called on the task's loop at each
    heartbeat or sooner."""

    def __init__(self, run: TaskRun, attend: Callable[[list[Control]], list[str]], tick: Callable[[], None]) -> None:
        self._run = run
        self._attend = attend
        self._tick = tick
        self._lock = threading.Lock()
        self._ended = False
        self._handed: set[str] = set()
        self._told: set[str] = set()
        self._written = self._sampled = self._woken = -1e9
        self._durable = -1
        self._last: live.Live | None = None
        self._process: psutil.Process | None = None
        self._cpu: float | None = None
        self._rss: int | None = None
        self._room: resources.Room | None = None
        self._kills: int | None = None
        self._watch = resources.Watch()

    def start(self) -> None:
        TICKER.add(self._beat)

    def stop(self) -> None:
        """Write a last picture and end."""
        TICKER.remove(self._beat)
        with self._lock:
            self._ended = True
            self._guarded(self._show)

    def _beat(self) -> None:
        with self._lock:
            if not self._ended:
                self._guarded(self._show)
                self._guarded(self._bring)

    def _guarded(self, part: Callable[[], None]) -> None:
        """One part of a beat.  Without a pulse a task is deaf: trouble is an alarm, and the next beat comes."""
        try:
            part()
        except Exception as error:  # noqa: BLE001  # whatever it is, it may work the next time
            self._complain(error)

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._sampled >= HEARTBEAT:
            self._sampled = now
            self._sample()
        picture = self._picture()
        if self._ended or now - self._written >= HEARTBEAT or (now - self._written >= _LIVE_S and picture != self._last):
            self._write(picture)
            self._written, self._last = now, picture

    def _sample(self) -> None:
        """CPU, memory and disk, with an alarm before they run out; and an idle journal gives its file back."""
        import psutil

        if self._process is None:
            self._process = psutil.Process()
        self._cpu, self._rss = self._process.cpu_percent(None), self._process.memory_info().rss
        self._kills = resources.kills()
        self._room = room = resources.room(self._run.session.layout.root)
        for alarm in self._watch.look(room):
            self._run.call(functools.partial(self._raise, alarm))
        durable = self._run.appender.durable_seq
        if durable == self._durable:
            self._run.appender.rest()
        self._durable = durable

    def _bring(self) -> None:
        now = time.monotonic()
        if now - self._woken >= _LOOP_S:
            self._woken = now
            self._run.call(self._tick)
        waiting = [c for c in inbox.waiting(self._run.session.layout) if c.id not in self._handed]
        if waiting:
            self._handed.update(c.id for c in waiting)
            self._run.call(lambda: self._hand(waiting))

    def _hand(self, waiting: list[Control]) -> None:
        """On the task's loop.  What could not be attended to is handed in again by a later beat."""
        again = [c.id for c in waiting]
        try:
            again = self._attend(waiting)
        finally:
            self._handed.difference_update(again)

    def _complain(self, error: Exception) -> None:
        """Raise an alarm, once for the same trouble."""
        told = f"the heartbeat had trouble: {type(error).__name__}: {error}"
        if told not in self._told and not self._ended:
            self._told.add(told)
            self._run.call(lambda: self._raise(p.AlarmRaised("pulse", told)))

    def _raise(self, alarm: p.AlarmRaised) -> None:
        if not self._ended:
            self._run.emit("AlarmRaised", alarm)

    def _picture(self) -> live.Live:
        """What there is to see now, without heartbeat and resources."""
        run = self._run
        with run.appender.frozen() as state:
            return self._live(run, state)

    def _live(self, run: TaskRun, state: State) -> live.Live:
        execution = state.execution_state
        return live.Live(
            run.task_id,
            run.appender.epoch,
            0.0,
            str(state.system_state.status),
            list(run.executing)[:20],
            execution.current_stage,
            execution.done,
            execution.total,
            execution.text,
            self._harmless(run.partial),
            durable_seq=run.appender.durable_seq,
            last_seq=state.seq,
            degraded=run.degraded,
            cpu=self._cpu,
            rss=self._rss,
        )

    def _harmless(self, text: str) -> str:
        scrub = self._run.appender.scrub
        return scrub(text.encode()).decode() if scrub is not None and text else text

    def _write(self, picture: live.Live) -> None:
        run = self._run
        picture = live.Live(**{f: getattr(picture, f) for f in picture.__struct_fields__})
        picture.heartbeat = run.clock.now()
        if (room := self._room) is not None:
            picture.memory_used, picture.memory_total = room.memory_used, room.memory_total
            picture.disk_free, picture.disk_total = room.disk_free, room.disk_total
        picture.kills = self._kills
        picture.next_checkpoint = run.triggers.next_in
        live.write_live(run.session.layout, picture, run.appender.disk)
