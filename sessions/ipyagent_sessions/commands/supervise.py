"""A command of the terminal in a process of its own, started again when that dies: `--recover auto:N` (R128, R134).

The same call continues its unfinished task, so starting again is giving the same command.  The waits grow; when it has died N
times in a row and nothing was completed in between, the loss is logged and a person is needed: no crash loop goes on for
ever."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.lifecycle import LOST
from ipyagent_sessions.log.lease import boot, host
from ipyagent_sessions.run import control
from ipyagent_sessions.run.process import signal_name
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

GUARD: Final = "IPYAGENT_SUPERVISED"
"""Set for the process that is watched."""
_FIRST_S: Final = 2.0
_LONGEST_S: Final = 600.0
_GROWTH: Final = 4.0
_MEANT: Final = frozenset(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE") if hasattr(signal, name)
)
"""Signals with which somebody ends a process on purpose."""


def wanted() -> bool:
    """Whether this process is the one that watches."""
    return not os.environ.get(GUARD)


def run(store: Store, words: Sequence[str], tries: int) -> int:
    """Run the terminal command `words` until it ends by itself; its exit status, or 1 when it died `tries` times more."""
    words, died, done = list(words), 0, -1
    while True:
        pid, status = _once(words)
        if status >= 0 or -status in _MEANT:
            return status if status >= 0 else 128 - status
        name = signal_name(-status)
        how = f"signal {name}" if name.isdigit() else name
        lost = _lost(store, pid)
        told = _record(lost, f"process {pid} was ended by {how}")
        now = -1 if lost is None else lost.state().execution_state.done
        died, done = (0 if now > done else died) + 1, now
        if died > tries:
            print(f"ipyagent: it died {died} times in a row without getting on ({how}); {told}", file=sys.stderr, flush=True)
            return 1
        wait = wait_after(died)
        print(f"ipyagent: it died of {how} and goes on in {wait:g} s ({died} of {tries})", file=sys.stderr, flush=True)
        time.sleep(wait)
        words = given_again(words)


def wait_after(died: int) -> float:
    """Seconds before going on after so many deaths in a row."""
    return min(_LONGEST_S, _FIRST_S * _GROWTH ** (died - 1))


def _once(words: Sequence[str]) -> tuple[int, int]:
    """The pid of the command in a process of its own, and its exit status, negative for a signal.  Ctrl-C is that process's
    business."""
    child = subprocess.Popen([sys.executable, "-m", "ipyagent_sessions.cli", *words], env={**os.environ, GUARD: "1"})
    while True:
        try:
            return child.pid, child.wait()
        except KeyboardInterrupt:  # it has got it too: a first one pauses
            continue


def given_again(words: list[str]) -> list[str]:
    """The same command, which now goes on with the task that it made."""
    ours = words[: words.index("--")] if "--" in words else words
    kept = [word for word in ours if word not in ("--new", "--session=new")]
    while "--session" in kept and kept[kept.index("--session") + 1 :][:1] == ["new"]:
        at = kept.index("--session")
        del kept[at : at + 2]
    return [*kept, *words[len(ours) :]]


def _lost(store: Store, pid: int) -> Session | None:
    """The session whose task ran in that process, None when it had begun none."""
    for found in store.sessions():
        if found.state == LOST:
            session = store.session(found.session_id)
            with contextlib.suppress(IpyagentError, OSError):
                holder = session.state().system_state.holder
                if (holder.get("pid"), holder.get("host"), holder.get("boot")) == (pid, host(), boot()):
                    return session
    return None


def _record(lost: Session | None, how: str) -> str:
    """Log the loss at once, with how its process ended (R134); returns what to tell when nothing more is tried."""
    if lost is None:
        return "see: ipyagent ls"
    try:
        control.attend(lost, by="supervisor", how=how)
    except IpyagentError as error:
        return error.message
    return f"{lost.id} is suspended; what happened: ipyagent log {lost.id}"
