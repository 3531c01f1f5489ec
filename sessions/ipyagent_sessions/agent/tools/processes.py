"""Processes that tools start: marked, so that they and all that they start are found again, and ended without remainder.

A group or session of its own is not enough: a child may leave both.  The mark is a variable of the environment, which children
inherit and hardly ever drop.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ipyagent_sessions.agent.tools.workbench import Started

if TYPE_CHECKING:
    import psutil

MARK: Final = "IPYAGENT_STARTED_BY"
"""The variable that holds the mark: `<mark of the session>/<one process>`."""
GRACE_S: Final = 0.3
"""How long a process has to end by itself once it was asked to."""
_ROUNDS: Final = 5

_SECRET_NAME: Final = re.compile(
    r"password|passwd|passphrase|token|secret|credential|api_?key|private_?key|access_?key|cookie"
    r"|(^|_)(key|keys|auth|pass|pwd|dsn)(_|$)",
    re.IGNORECASE,
)
_HARMLESS: Final = frozenset({"PWD", "OLDPWD"})
_SECRET_VALUE: Final = re.compile(
    r"^(sk|pk|rk)[-_][A-Za-z0-9_-]{16}|^gh[pousr]_|^github_pat_|^glpat-|^xox[a-z]-|^AKIA[A-Z0-9]{12}|^eyJ[A-Za-z0-9_-]+\."
    r"|^hf_[A-Za-z0-9]{16}|^npm_[A-Za-z0-9]{16}|-----BEGIN [A-Z ]*PRIVATE KEY|://[^/\s:@]*:[^/\s@]+@"
)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without the variables that look like keys, by their name or by their value."""
    return {
        name: value
        for name, value in environment.items()
        if name in _HARMLESS or not (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))
    }


def new_mark(session: str) -> str:
    """A mark for one process of a session."""
    return f"{session}/{uuid.uuid4().hex[:12]}"


def noted(pid: int, command: str, mark: str) -> Started:
    """The entry for a process that was just started; the start is 0 when it has ended already."""
    import psutil

    try:
        started = psutil.Process(pid).create_time()
    except psutil.Error:
        started = 0.0
    return Started(pid, round(started, 2), command[:200], mark)


def marked(mark: str) -> list[psutil.Process]:
    """The living processes that carry `mark`, or one that begins with `mark` and a slash."""
    import psutil

    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            carried = process.environ().get(MARK, "")
            if (carried == mark or carried.startswith(f"{mark}/")) and lives(process) and process.pid != os.getpid():
                found.append(process)
    return found


def end_marked(mark: str, *, group: int | None = None) -> int:
    """End all processes that carry `mark`, and the process group `group`; gives how many had to be ended.

    They are asked first and killed `GRACE_S` seconds later.  Takes less than a second unless a process cannot be killed.
    """
    import psutil

    found = marked(mark)
    _signal_group(group, "SIGTERM")
    ended = {process.pid for process in found}
    end(found)
    _signal_group(group, "SIGKILL")
    for _ in range(_ROUNDS):  # what was started while we looked
        late = marked(mark)
        if not late:
            break
        ended |= {process.pid for process in late}
        for process in late:
            with contextlib.suppress(psutil.Error):
                process.kill()
        _wait(late)
    return len(ended)


def end(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Ask processes to end, kill those that do not; gives the ones that are still there."""
    import psutil

    processes = list(processes)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    left = _wait(processes)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return _wait(left)


def lives(process: psutil.Process) -> bool:
    """Whether it still runs.  One that has ended and that nobody has reaped, as in a container without an init, does not."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _wait(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Wait until processes have ended, `GRACE_S` seconds at most; gives those that have not."""
    deadline = time.monotonic() + GRACE_S
    while (left := [process for process in processes if lives(process)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def _signal_group(group: int | None, name: str) -> None:
    if group is not None and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, getattr(signal, name))
