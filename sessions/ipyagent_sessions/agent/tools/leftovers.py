"""Processes that outlived the engine that started them: after a kill -9 of the kernel nobody is there to end them.

The log says what was started; a pid says nothing by itself, since it is used again, so the start time has to fit as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ipyagent_sessions.agent.tools import processes
from ipyagent_sessions.agent.tools.workbench import Started

if TYPE_CHECKING:
    import psutil


def living(entries: Iterable[Started], session: str | None = None) -> list[Started]:
    """The recorded processes that still live, and those that they have started.

    With the mark of the session also those that were started and not recorded any more.  Call it while no tool of that
    session runs: what runs now is found like what is left over.
    """
    entries = list(entries)
    found = {process.pid: process for mark in _marks(entries, session) for process in processes.marked(mark)}
    known = {entry.pid: entry for entry in entries if _lives(entry)}
    return [*known.values(), *(_entry(process) for pid, process in sorted(found.items()) if pid not in known)]


def stop(found: Iterable[Started]) -> list[Started]:
    """End processes that `living` has found; gives those that live on."""
    ours: list[tuple[Started, psutil.Process]] = []
    for entry in found:
        process = _process(entry)
        if process is not None:
            ours.append((entry, process))
    left = {process.pid for process in processes.end(process for _, process in ours)}
    return [entry for entry, _ in ours if entry.pid in left]


def _marks(entries: list[Started], session: str | None) -> set[str]:
    return {entry.mark for entry in entries if entry.mark} | ({session} if session else set())


def _lives(entry: Started) -> bool:
    return _process(entry) is not None


def _process(entry: Started) -> psutil.Process | None:
    """The process that was recorded; None when it has ended, or its pid belongs to another one now."""
    import psutil

    try:
        process = psutil.Process(entry.pid)
        same = abs(process.create_time() - entry.started) < 1.0 and processes.lives(process)
    except psutil.Error:
        return None
    return process if same and _carries(process, entry.mark) else None


def _carries(process: psutil.Process, mark: str) -> bool:
    """Whether the process has the mark, as far as that can be seen."""
    import psutil

    try:
        return process.environ().get(processes.MARK, "") == mark
    except (psutil.Error, OSError):
        return True


def _entry(process: psutil.Process) -> Started:
    import psutil

    with process.oneshot():
        mark = process.environ().get(processes.MARK, "")
        try:
            command = " ".join(process.cmdline())
        except psutil.Error:
            command = process.name()
        return Started(process.pid, round(process.create_time(), 2), command[:200], mark)
