"""What is short or away: which errors mean so, how long to wait for it, and what a task does meanwhile (R128-R131).

A network that is away and a disk or memory that is full are no mistakes of the work.  The task waits for them by itself as
often as it was allowed to (`--recover auto:N`), and else, or after that, is suspended until a person resumes it."""

from __future__ import annotations

import contextlib
import email.utils
import errno
import re
import signal
import socket
import urllib.error
from datetime import UTC, datetime
from typing import Any, Final, Literal

from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.run.process import ChildDied
from ipyagent_sessions.run.task import TaskRun

Short = Literal["network", "resources"]

_NETWORK: Final = frozenset(
    getattr(errno, name)
    for name in ("ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "ETIMEDOUT", "ECONNABORTED")
    if hasattr(errno, name)
)
_ROOM: Final = frozenset(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "ENOMEM", "EMFILE", "ENFILE") if hasattr(errno, name)
)
_CLIENTS: Final = {
    "httpx": {"TransportError"},
    "requests": {"ConnectionError", "Timeout"},
    "urllib3": {"HTTPError"},
    "aiohttp": {"ClientConnectionError", "ServerTimeoutError"},
}
"""The classes of HTTP clients that say the network is away, by the package they come from."""
_BUSY: Final = frozenset({408, 425, 429, 529})
_NEVER: Final = frozenset({501, 505, 511})
"""Of a server's own failures those that no waiting mends."""
_TRIES: Final = re.compile(r"[0-9]{1,3}")
_FIRST_S: Final = 5.0
_LONGEST_S: Final = 600.0
_GROWTH: Final = 4.0
_LONGEST_ASKED_S: Final = 86_400.0
"""A server's own wait counts up to a day: one that asks for more is not away but closed, or says nonsense, and after a day of
waiting it is worth another look."""


def kind_of(error: BaseException) -> Short | None:
    """What is away or short when a function raised this; None when the error says nothing of the kind.

    A child process that was killed with SIGKILL and by nobody here is what the system does when memory runs out.
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _ROOM):
        return "resources"
    if isinstance(error, ChildDied):
        return "resources" if error.returncode == -getattr(signal, "SIGKILL", 9) else None
    if isinstance(error, urllib.error.HTTPError) or _status(error) is not None:
        return "network" if _is_away(_status(error) or 0) else None
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        return kind_of(error.reason)
    if isinstance(error, ConnectionError | TimeoutError | socket.gaierror):
        return "network"
    if isinstance(error, OSError) and error.errno in _NETWORK:
        return "network"
    named = any(c.__name__ in _CLIENTS.get(c.__module__.partition(".")[0], ()) for c in type(error).__mro__)
    return "network" if named else None


def asked_wait(error: BaseException | None, now: float) -> float:
    """The seconds that a server asked to wait, as `retry_after_s` of the error or as Retry-After of its response (RFC 9110,
    10.2.3: seconds or a date); 0 when it said nothing, at most a day."""
    return max(0.0, min(_LONGEST_ASKED_S, _asked_wait(error, now)))


def _asked_wait(error: BaseException | None, now: float) -> float:
    given = getattr(error, "retry_after_s", None)
    if given is not None:
        return float(given)
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
    said = None
    with contextlib.suppress(Exception):  # whatever stands there is not ours
        said = headers.get("Retry-After") if headers is not None else None
    if not isinstance(said, str):
        return 0.0
    if said.isascii() and said.strip().isdigit():
        return float(said)
    with contextlib.suppress(ValueError, TypeError):
        at = email.utils.parsedate_to_datetime(said)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now
    return 0.0


def _is_away(status: int) -> bool:
    """Whether an HTTP status says that the server cannot answer now (R130)."""
    return status in _BUSY or (500 <= status < 600 and status not in _NEVER)


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error carries, as the clients name it."""
    response: Any = getattr(error, "response", None)
    for found in (getattr(response, "status_code", None), getattr(response, "status", None), getattr(error, "code", None)):
        if isinstance(found, int) and not isinstance(found, bool) and 100 <= found < 600:
            return found
    return None


async def outlast(run: TaskRun, name: str, reason: str, detail: str, *, at_least_s: float = 0.0) -> None:
    """Wait for what `reason` says, suspended and with this process alive; returns when it is worth another try.

    `name` is what is tried: its tries are counted until `over` says that it worked.  Raises TaskStop when the task may not
    wait by itself, or has done so as often as it may, and when it is asked to stop.
    """
    tried = run.outages.get(name, 0)
    allowed = run.state.system_state.recover
    if tried >= allowed:
        more = f" (tried {tried} times more)" if tried else ""
        run.stop("suspend", reason=reason, detail=f"{detail}{more}")
        run.check()
    run.outages[name] = tried + 1
    wait = max(at_least_s, min(_LONGEST_S, _FIRST_S * _GROWTH**tried))
    until = datetime.fromtimestamp(run.clock.now() + wait, UTC).isoformat(timespec="seconds")
    if run.state.system_state.status is TaskState.RUNNING:
        again = f"by itself at {until}, try {tried + 1} of {allowed}"
        run.move(TaskState.SUSPENDED, "TaskSuspended", p.TaskSuspended(reason, f"{detail}; it goes on {again}", again))
    await run.rest(wait)
    run.works_again(cause=reason)


def over(run: TaskRun, name: str) -> None:
    """Note that what was tried worked: a later outage has all its tries again."""
    run.outages.pop(name, None)


def policy(text: str | None) -> int | None:
    """How often a task may wait by itself, from `ask` (0) or `auto:N`; None where nothing is said.  Raises UsageError."""
    if text is None:
        return None
    kind, _, number = text.partition(":")
    if kind == "ask" and not number:
        return 0
    if kind == "auto" and _TRIES.fullmatch(number) and 0 < int(number) <= 100:
        return int(number)
    raise UsageError(f"--recover {text[:80]}: not known", hint="ask, or auto:N with N from 1 to 100")
