"""States made from events alone, as the log would give them."""

from __future__ import annotations

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import Event, Stamper, as_raw
from ipyagent_sessions.folding import apply
from ipyagent_sessions.state import State

START = 1_780_000_000.0
TASK = "abcdefghij.1"


class Story:
    """Events one second apart, folded as they come."""

    def __init__(self, title: str = "Audit of the standard library") -> None:
        self.state = State()
        self.now = START
        self._stamp = Stamper()
        self.add("SessionCreated", p.SessionCreated(title), task=False)
        self.add("TaskQueued", p.TaskQueued("flows:audit", title=title, run_key="k"))

    def add(
        self,
        event_type: str,
        payload: p.Payload,
        *,
        activity: str | None = None,
        attempt: int | None = None,
        task: bool = True,
        actor: str = "engine",
        cost: float | None = None,
    ) -> Event:
        self.now += 1.0
        event = Event(
            self.state.seq + 1,
            event_type,
            self._stamp(self.now),
            task_id=TASK if task else None,
            activity_id=activity,
            attempt=attempt,
            actor=actor,
            payload=as_raw(payload),
            cost_usd=cost,
        )
        apply(self.state, event)
        return event

    def started(self, total: int | None = None) -> Story:
        self.add("TaskStarted", p.TaskStarted())
        if total is not None:
            self.add("ActivityProgressed", p.ActivityProgressed(0, total))
        return self

    def step(self, key: str, *, finish: bool = True, attempt: int = 1) -> Story:
        activity = f"1/analyse:{key}"
        self.add(
            "ActivityStarted", p.ActivityStarted("analyse", key=key, stage="1", digest="d"), activity=activity, attempt=attempt
        )
        if finish:
            self.add(
                "ActivityCompleted", p.ActivityCompleted("analyse", digest="d", result=as_raw({"n": 1})), activity=activity
            )
        return self
