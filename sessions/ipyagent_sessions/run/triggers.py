"""When a checkpoint is due: by wall time, by event, by a change of the state, by volume (R045-R051).

Stage, manual and end checkpoints are asked for where they happen.  Every trigger gives a `CheckpointCreated` event, which
rides with the next commit; its snapshot is materialised at a bounded rate, since the log alone is enough to restore."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from ipyagent_sessions.clock import Clock
from ipyagent_sessions.config import CheckpointPolicy
from ipyagent_sessions.errors import ConfigError
from ipyagent_sessions.events import Event
from ipyagent_sessions.folding.activities import UNCOUNTED
from ipyagent_sessions.state import State

VOLUME: Final = 10_000
"""Each time the log has doubled, but not before so many events, a snapshot is taken: a resume folds at most half of the
log."""
MATERIALISE_S: Final = 30.0
"""Unnamed snapshots are written at most this often, in seconds."""
_ALWAYS: Final = frozenset({"checked", "manual", "interrupted", "end"})
_OFTEN: Final = frozenset({"time", "volume", "stage"})


class Triggers:
    """Watches one task's events.  Seconds are those of the clock given."""

    def __init__(self, policy: CheckpointPolicy, clock: Clock, state: State) -> None:
        self._policy = policy
        self._clock = clock
        self._types = frozenset(policy.events)
        self._due_at = self._next_due()
        self._materialised = clock.monotonic()
        self._since = 0
        self._watched = {path: _at(state, path) for path in policy.paths}

    def _next_due(self) -> float:
        interval = self._policy.interval_s
        return math.inf if interval is None else self._clock.monotonic() + interval

    def due(self) -> str | None:
        """The trigger "time" when the interval has passed since the last timed checkpoint."""
        return "time" if self._clock.monotonic() >= self._due_at else None

    @property
    def next_in(self) -> float | None:
        """Seconds until the next timed checkpoint, None when there is none."""
        return None if self._due_at == math.inf else max(0.0, self._due_at - self._clock.monotonic())

    def observe(self, event: Event, state: State) -> str | None:
        """What `event`, already folded into `state`, triggers; None for nothing."""
        self._since += 1
        if event.event_type == "ActivityCompleted":
            done = state.business_state.results.get(event.activity_id or "") if self._types else None
            if done is not None and done.kind not in UNCOUNTED:
                if "ActivityCompleted" in self._types:
                    return "ActivityCompleted"
                if done.effect != "none" and "external_api_called" in self._types:
                    return "external_api_called"
        elif event.event_type in self._types:
            return event.event_type
        if self._watched:
            for path, before in self._watched.items():
                now = _at(state, path)
                if now != before:
                    self._watched[path] = now
                    return path
        if self._since >= VOLUME and self._since >= state.seq // 2:
            return "volume"
        return "time" if self._clock.monotonic() >= self._due_at else None

    def taken(self, trigger: str, *, behind: bool) -> bool:
        """Note that a checkpoint was taken; whether its snapshot should be written now.

        While snapshots wait to be written (`behind`), only those are made that somebody asked for.
        """
        now = self._clock.monotonic()
        if trigger == "time":
            self._due_at = self._next_due()
        often = trigger in _OFTEN or now - self._materialised >= MATERIALISE_S
        write = trigger in _ALWAYS or (often and not behind)
        if write:
            self._materialised, self._since = now, 0
        return write


def check_paths(paths: tuple[str, ...]) -> None:
    """Raise ConfigError for a path that no state has, as far as that can be known: of a layer, the field."""
    for path in paths:
        layer, *fields = path.split(".")
        if fields and fields[0] not in getattr(State(), layer).__struct_fields__:
            raise ConfigError(
                f"checkpoint.triggers: {path!r}: {layer} has no {fields[0]!r}",
                hint="a workflow's own values are under business_state.values",
            )


def _at(state: State, path: str) -> Any:
    """The value at a dotted path of the state, as JSON bytes so that a later change of the same object is seen."""
    value: Any = state
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    return msgspec.json.encode(sorted(value) if isinstance(value, dict) else value)
