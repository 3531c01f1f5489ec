"""The idempotency key of an activity: what its outbound calls carry, so that the other end sees a repetition (R155, R156)."""

from __future__ import annotations

import contextvars
import hashlib
import os
from types import TracebackType
from typing import Final

from ipyagent_sessions.errors import UsageError

VARIABLE: Final = "IPYAGENT_IDEMPOTENCY_KEY"
"""How a process that an activity starts is told its key: that of `isolate="process"` and commands of `run_shell`."""

_here: contextvars.ContextVar[tuple[str, str] | None] = contextvars.ContextVar("ipyagent_key", default=None)


class Keyed:
    """While inside, the running code belongs to this activity of this task.  A class, as it is entered for each activity."""

    __slots__ = ("_of", "_token")

    def __init__(self, task_id: str, activity_id: str) -> None:
        self._of = (task_id, activity_id)

    def __enter__(self) -> None:
        self._token = _here.set(self._of)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _here.reset(self._token)


def idempotency_key() -> str:
    """32 hex digits that name the activity which the running code belongs to, for its calls to others.

    The same in each attempt and after each resume, also in the activity's `verify` and `compensate` and in the processes that
    it starts (as `IPYAGENT_IDEMPOTENCY_KEY`); another one for another call, task, rerun or fork.  Raises UsageError outside of
    an activity.
    """
    found = _here.get()
    if found is not None:
        return hashlib.blake2b("\0".join(found).encode(), digest_size=16).hexdigest()
    given = os.environ.get(VARIABLE)
    if not given:
        raise UsageError(
            "there is no idempotency key outside of an activity", hint="call it in the function that ctx.run runs"
        )
    return given


def environment() -> dict[str, str]:
    """The variable for a process that the running activity starts; empty outside of one."""
    return {} if _here.get() is None else {VARIABLE: idempotency_key()}
