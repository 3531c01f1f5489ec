"""The heartbeat of a running task: one thread that shows it is alive, says what it does, and brings in what people ask.

It writes `live.json` (at most five times a second, at least once a heartbeat), looks into the inbox ten times a second, and samples
CPU and memory.  It never touches the log: requests are handed to the task's loop.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from typing import Final

from ipyagent_sessions.log import inbox, live
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.log.lease import HEARTBEAT
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.state import State

TICK_S: Final = 0.1
_LIVE_S: Final = 0.2


class Pulse:
    """Runs from `start` to `stop`.  `attend` gets requests, `tick` is called on the task's loop at each heartbeat or sooner."""

    def __init__(self, run: TaskRun, attend: Callable[[list[Control]], None], tick: Callable[[], None]) -> None:
        self._run = run
        self._attend = attend
        self._tick = tick
        self._end = threading.Event()
        self._handed: set[str] = set()
        self._cpu: float | None = None
        self._rss: int | None = None
        self._thread = threading.Thread(target=self._beat, name="ipyagent-pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write a last picture and end."""
        self._end.set()
        self._thread.join()

    def _beat(self) -> None:
        import psutil

        process = psutil.Process()
        process.cpu_percent(None)
        written = sampled = -1e9
        last: live.Live | None = None
        while True:
            ended = self._end.wait(TICK_S)
            now = time.monotonic()
            if now - sampled >= HEARTBEAT:
                sampled = now
                self._cpu, self._rss = process.cpu_percent(None), process.memory_info().rss
            picture = self._picture()
            due = now - written >= HEARTBEAT or (now - written >= _LIVE_S and picture != last)
            if due or ended:
                self._write(picture)
                written, last = now, picture
            if ended:
                return
            self._run.call(self._tick)
            waiting = [c for c in inbox.waiting(self._run.session.layout) if c.id not in self._handed]
            if waiting:
                self._handed.update(c.id for c in waiting)
                self._run.call(lambda found=waiting: self._attend(found))  # type: ignore[misc]  # mypy cannot infer the default

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
            durable_seq=run.appender.durable_seq,
            last_seq=state.seq,
            degraded=run.degraded,
            cpu=self._cpu,
            rss=self._rss,
        )

    def _write(self, picture: live.Live) -> None:
        import psutil

        run = self._run
        disk = shutil.disk_usage(run.session.layout.root)
        picture = live.Live(**{f: getattr(picture, f) for f in picture.__struct_fields__})
        picture.heartbeat = run.clock.now()
        picture.memory_total = psutil.virtual_memory().total
        picture.disk_free, picture.disk_total = disk.free, disk.total
        picture.next_checkpoint = run.triggers.next_in
        live.write_live(run.session.layout, picture, run.appender.disk)
