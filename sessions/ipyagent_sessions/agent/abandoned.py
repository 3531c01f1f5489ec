"""What tools left running whose task is cancelled while nobody runs it, as after a kill -9 of the kernel: no resume comes that
would end it (R256)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import msgspec

from ipyagent_sessions.agent.tools import leftovers
from ipyagent_sessions.agent.tools.workbench import Started
from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.events import Event
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.session import Session


def unended(events: Iterable[Event]) -> list[Started]:
    """The processes that tools have started and that nobody saw end."""
    open_ones: dict[tuple[int, float], Started] = {}
    for event in events:
        if event.event_type in ("ProcessStarted", "ProcessEnded"):
            process = msgspec.json.decode(event.payload, type=Started)
            if event.event_type == "ProcessStarted":
                open_ones[process.pid, process.started] = process
            else:
                open_ones.pop((process.pid, process.started), None)
    return list(open_ones.values())


def told(found: Iterable[Started], still: list[Started]) -> list[str]:
    """One line for each process that was found; `still` are those that could not be ended."""
    ended = [f"{p.command} (pid {p.pid}) was still running and was ended" for p in found if p not in still]
    return ended + [f"{p.command} (pid {p.pid}) is still running and cannot be ended" for p in still]


def end(session: Session, *, by: str) -> list[str]:
    """End what tools of `session`, which nobody runs, have left running, and log that; gives one line for each."""
    entries = unended(session.events())
    found = leftovers.living(entries, session.id) if entries else []
    if not found:
        return []
    still = leftovers.stop(found)
    with contextlib.suppress(IpyagentError):  # it has ended, also where that cannot be written down
        appender = session.append(this_process(by=by))
        try:
            for process in found:
                if process not in still:
                    body = msgspec.to_builtins(msgspec.structs.replace(process, stopped=True))
                    appender.emit("ProcessEnded", body, task_id=appender.state.system_state.task_id, ignorable=True)
            appender.barrier()
        finally:
            appender.close(rest=True)
    return told(found, still)
