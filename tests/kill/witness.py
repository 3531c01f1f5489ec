"""The witness: one append-only file outside the store, written by whoever does something, the moment it does it.

Each note is one `write` to a file opened with O_APPEND, so the notes of all processes have one order, and a killed process
leaves the notes it made: what is in the page cache does not die with it.  The words:

    opened     a process begins                      ended     it ends by itself, and how
    begin      an activity's function is entered     end       it is left
    effect     it changes the world                  seen      the workflow's body has been given its result
    acked      the log has promised to keep events   asked     somebody's request was accepted
    killed     the harness noticed a death           value     what a recorded value was, as the body saw it
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, ClassVar


class Witness:
    """The witness file at `path`.  `after`, where it is set, is told of each note that was made."""

    after: ClassVar[Callable[[str, dict[str, Any]], None] | None] = None

    def __init__(self, path: str) -> None:
        self.path = path

    def note(self, word: str, **what: Any) -> None:
        line = json.dumps({"w": word, "pid": os.getpid(), "t": round(time.monotonic(), 4), **what}) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            written = os.write(fd, line.encode())
        finally:
            os.close(fd)
        if written != len(line):
            raise OSError(f"a note was cut: {line}")
        if Witness.after is not None:
            Witness.after(word, what)

    def notes(self, *words: str) -> list[dict[str, Any]]:
        """The notes so far in their order, all or those of some words."""
        try:
            with open(self.path, encoding="utf-8") as file:
                found = [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []
        return [n for n in found if n["w"] in words] if words else found

    def happened(self, who: str) -> bool:
        """Whether the effect of `who` was had."""
        return any(n["id"] == who for n in self.notes("effect"))

    @contextmanager
    def execution(self, who: str) -> Generator[None]:
        """Notes around one real execution of the activity `who`."""
        attempt = _attempt()
        self.note("begin", id=who, attempt=attempt)
        yield
        self.note("end", id=who, attempt=attempt)


class Trap:
    """Kills this process right after the `at`-th note of `word` by an activity whose name begins with `name`; to be put
    into `Witness.after`."""

    def __init__(self, word: str, name: str, at: int = 1) -> None:
        self._word = word
        self._name = name
        self._left = at

    def __call__(self, word: str, what: dict[str, Any]) -> None:
        if word == self._word and str(what.get("id", "")).startswith(self._name):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _attempt() -> int:
    """The number of the attempt that the running code belongs to, as the engine counts."""
    from ipyagent_sessions.run.inside import current

    here = current()
    if here is None:
        return 0
    active = here.run.state.execution_state.active_activities.get(here.plan.id)
    return active.attempt if active is not None else 0
