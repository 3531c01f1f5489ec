"""Plausible histories of tasks: valid event sequences with stages, retries, approvals, files and state changes.

They are drawn from a `random.Random`, so a seed repeats them and Hypothesis can shrink them (`strategies.randoms()`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from msgspec import Raw, Struct

from ipyagent_sessions import codec
from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import Event, Stamper, as_raw
from ipyagent_sessions.testing.clock import START

TEXTS: Final = ("", "scan", "日本語", "a\u2028b", "naïve \U0001f9ea", "line\nfeed\r", '"quoted" \\ back', "x" * 300)


class Emission(Struct):
    """What one event is made of, as `Appender.emit` takes it."""

    event_type: str
    payload: p.Payload | dict[str, Any]
    task_id: str | None = None
    activity_id: str | None = None
    attempt: int | None = None
    actor: str = "engine"
    ignorable: bool = False
    measured: dict[str, Any] = {}


class Emitter(Protocol):
    """An `Appender`, as far as it matters here."""

    @property
    def emit(self) -> Callable[..., Event]: ...


def emit(appender: Emitter, item: Emission) -> Event:
    """Append `item`."""
    return appender.emit(
        item.event_type,
        item.payload,
        task_id=item.task_id,
        activity_id=item.activity_id,
        attempt=item.attempt,
        actor=item.actor,
        ignorable=item.ignorable,
        **item.measured,
    )


def events(items: Iterator[Emission], *, first: int = 1, start: float = START, step: float = 0.25) -> Iterator[Event]:
    """The events that a log would hold of `items`, `step` seconds apart."""
    stamp = Stamper()
    for n, item in enumerate(items):
        yield Event(
            first + n,
            item.event_type,
            stamp(start + n * step),
            None,
            item.task_id,
            item.activity_id,
            item.attempt,
            item.actor,
            as_raw(item.payload),
            None,
            ignorable=item.ignorable,
            **item.measured,
        )


def activities(appender: Emitter, count: int, *, task_id: str = "t", text: str = "") -> None:
    """Emit `count` activities, two events each; an id holds a number of its own, so that none repeats in the session."""
    number = 0
    for _ in range(count):
        activity_id = f"/work:{number}"
        begun = appender.emit(
            "ActivityStarted", p.ActivityStarted("work", digest="d"), task_id=task_id, activity_id=activity_id, attempt=1
        )
        number = begun.seq
        appender.emit(
            "ActivityCompleted",
            p.ActivityCompleted("work", digest="d", result=as_raw({"text": text, "n": number})),
            task_id=task_id,
            activity_id=activity_id,
            attempt=1,
        )


class History:
    """An endless history of one session, task after task."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._open: dict[str, tuple[str, int]] = {}
        self._done: list[str] = []
        self._asked: list[str] = []
        self._number = 0

    def __iter__(self) -> Iterator[Emission]:
        yield Emission("SessionCreated", p.SessionCreated(self.rng.choice(TEXTS), "a.ipynb"))
        task = 0
        while True:
            task += 1
            yield from self._task(f"s.{task}")

    def _task(self, task_id: str) -> Iterator[Emission]:
        rng = self.rng
        self._open, self._done, self._asked, self._number = {}, [], [], 0
        yield Emission(
            "TaskQueued",
            p.TaskQueued("audit", title=rng.choice(TEXTS), run_key=task_id, args=as_raw({"n": task_id})),
            task_id,
            actor="user:anna",
        )
        yield Emission("TaskStarted", p.TaskStarted(holder={"pid": 7}, deadline=None), task_id)
        attempt = 1
        for _ in range(rng.randint(1, 12)):
            stage = f"{self._next()}"
            yield Emission("ActivityStarted", p.ActivityStarted(rng.choice(TEXTS), kind="stage"), task_id, stage)
            for _ in range(rng.randint(0, 8)):
                yield from self._step(task_id, stage)
            yield Emission("ActivityCompleted", p.ActivityCompleted("stage", kind="stage"), task_id, stage)
            yield Emission("CheckpointCreated", p.CheckpointCreated("stage", stage), task_id)
            if rng.random() < 0.2:
                attempt += 1
                yield from self._pause(task_id, attempt)
        yield from self._settle(task_id)
        yield rng.choice(
            (
                Emission("TaskCompleted", p.TaskCompleted(as_raw([1, 2.5, None])), task_id),
                Emission("TaskFailed", p.TaskFailed("ValueError", "no\u2028such"), task_id),
                Emission("TaskCancelled", p.TaskCancelled("enough"), task_id, actor="user:anna"),
            )
        )

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _settle(self, task_id: str) -> Iterator[Emission]:
        for activity_id in list(self._open):
            yield self._finish(task_id, activity_id)

    def _finish(self, task_id: str, activity_id: str) -> Emission:
        name, attempt = self._open.pop(activity_id)
        self._done.append(activity_id)
        measured: dict[str, Any] = {"execution_time_ms": round(self.rng.random() * 50, 3)}
        if self.rng.random() < 0.3:
            measured |= {"input_tokens": self.rng.randint(0, 900), "output_tokens": 7, "cost_usd": round(self.rng.random(), 6)}
        if self.rng.random() < 0.15:
            return Emission(
                "ActivityFailed",
                p.ActivityFailed(name, "OSError", self.rng.choice(TEXTS)),
                task_id,
                activity_id,
                attempt,
                measured=measured,
            )
        return Emission(
            "ActivityCompleted",
            p.ActivityCompleted(name, digest="d", result=self._value()),
            task_id,
            activity_id,
            attempt,
            measured=measured,
        )

    def _value(self) -> Raw:
        value = self.rng.choice(
            (None, 1, -2.5, "x" * 3000, {"a": [1, {"b": "日"}]}, (1, 2), [True, False, 1, 0], 2**70, float("inf"))
        )
        return Raw(codec.dumps(value))

    def _step(self, task_id: str, stage: str) -> Iterator[Emission]:
        rng = self.rng
        kind = rng.randrange(10)
        if kind <= 2 or not self._open:
            activity_id, name = f"{stage}/work:{self._next()}", rng.choice(TEXTS)
            self._open[activity_id] = (name, 1)
            yield Emission(
                "ActivityStarted",
                p.ActivityStarted(name, stage=stage, effect=rng.choice(("none", "irreversible"))),
                task_id,
                activity_id,
                1,
            )
        elif kind <= 5:
            yield self._finish(task_id, rng.choice(list(self._open)))
        elif kind == 6:
            activity_id = rng.choice(list(self._open))
            name, attempt = self._open[activity_id]
            self._open[activity_id] = (name, attempt + 1)
            yield Emission("ActivityRetried", p.ActivityRetried(name, "OSError", "again", 0.5), task_id, activity_id, attempt)
        elif kind == 7:
            yield Emission(
                "ActivityProgressed",
                p.ActivityProgressed(rng.randint(0, 9), rng.choice((None, 9)), "now"),
                task_id,
                rng.choice((*self._open, None)),
            )
        elif kind == 8:
            path = rng.choice(("current_goal", "a", "a.b", "a.b.c", "list"))
            op = "append" if path == "list" else "set"
            yield Emission(
                "StateChanged", p.StateChanged(path, as_raw(rng.choice((1, True, 1.0, {"y": 1, "x": 2}, "é"))), op), task_id
            )
        else:
            yield from self._other(task_id, stage)

    def _other(self, task_id: str, stage: str) -> Iterator[Emission]:
        rng, number = self.rng, self._next()
        kind = rng.randrange(5)
        if kind == 0:
            self._asked.append(f"ap{number}")
            yield Emission(
                "ApprovalRequested",
                p.ApprovalRequested(f"ap{number}", "Delete?", as_raw({"files": [1]})),
                task_id,
                f"{stage}/approve:{number}",
            )
        elif kind == 1 and self._asked:
            yield Emission(
                "ApprovalResolved", p.ApprovalResolved(self._asked.pop(), "yes", by="user:anna"), task_id, actor="user:anna"
            )
        elif kind == 2:
            yield Emission(
                "FileWritten", p.FileWritten(f"out/{number}.txt", "sha256:00", 12), task_id, f"{stage}/write:{number}"
            )
        elif kind == 3:
            yield Emission(
                "PageTurned", {"page": number, "text": rng.choice(TEXTS)}, task_id, f"{stage}/emit:{number}", ignorable=True
            )
        else:
            yield Emission("AlarmRaised", p.AlarmRaised("disk", rng.choice(TEXTS)), task_id)

    def _pause(self, task_id: str, attempt: int) -> Iterator[Emission]:
        if self.rng.random() < 0.5:
            yield Emission("TaskInterrupted", p.TaskInterrupted(partial="half"), task_id, actor="user:anna")
        else:
            yield Emission("TaskSuspended", p.TaskSuspended("network", "no route"), task_id)
        yield Emission("TaskResumed", p.TaskResumed(attempt, "user", "go on"), task_id, actor="user:anna")
        yield Emission("RecoveryCompleted", p.RecoveryCompleted(1, "worker_lost"), task_id)
