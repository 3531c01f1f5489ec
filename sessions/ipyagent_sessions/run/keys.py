"""The idempotency key of an activity: what its outbound calls carry, so that the other end sees a repetition (R155, R156)."""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import os
from collections.abc import Generator
from typing import Final

from ipyagent_sessions.errors import UsageError

VARIABLE: Final = "IPYAGENT_IDEMPOTENCY_KEY"
"""How a process that an activity starts is told its key: that of `isolate="process"` and commands of `run_shell`."""


class Owner:
    """An activity of a task, to which running code belongs."""

    def __init__(self, task_id: str, activity_id: str) -> None:
        self.task_id = task_id
        self.activity_id = activity_id


owner: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("ipyagent_owner", default=None)


@contextlib.contextmanager
def belonging(task_id: str, activity_id: str) -> Generator[None, None, None]:
    """While inside, the running code belongs to this activity without being its function: to `verify` or `compensate`."""
    token = owner.set(Owner(task_id, activity_id))
    try:
        yield
    finally:
        owner.reset(token)


def idempotency_key() -> str:
    """32 hex digits that name the activity which the running code belongs to, for its calls to others.

    The same in each attempt and after each resume, also in the activity's `verify` and `compensate` and in the processes that
    it starts (as `IPYAGENT_IDEMPOTENCY_KEY`); another one for another call, task, rerun or fork.  Raises UsageError outside of
    an activity.
    """
    found = owner.get()
    if found is not None:
        return hashlib.blake2b(f"{found.task_id}\0{found.activity_id}".encode(), digest_size=16).hexdigest()
    given = os.environ.get(VARIABLE)
    if not given:
        raise UsageError(
            "there is no idempotency key outside of an activity", hint="call it in the function that ctx.run runs"
        )
    return given


def environment() -> dict[str, str]:
    """The variable for a process that the running activity starts; empty outside of one."""
    return {} if owner.get() is None else {VARIABLE: idempotency_key()}
