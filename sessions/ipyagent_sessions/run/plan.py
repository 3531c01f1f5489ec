"""What is about to be done: a call whose identity and options are settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ipyagent_sessions.run.definitions import Activity, Effect, Retry


class Plan(Struct, frozen=True):
    """An activity call with its identity and its options settled."""

    id: str
    activity: Activity
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arguments: bytes
    digest: str
    stage: str
    key: str | None
    effect: Effect
    retry: Retry
    timeout_s: float | None
    verify: Callable[..., Any] | None
    compensate: Callable[..., Any] | None
    kind: str = "step"
