"""Going on by itself with a task whose kernel died (R128, `--recover auto:N`): whether, after what wait, with which command.

A terminal command has a supervisor.  A notebook's kernel has none, so whoever serves the store starts one: the command that a
person would give, with the kernel's interpreter, in its folder, which from then on is started again when it dies.  How often
the kernel was lost is read from the log, so that a restarted server does not begin to count anew.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from ipyagent_sessions.commands import supervise
from ipyagent_sessions.folding.activities import UNCOUNTED
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.payloads import ActivityCompleted
from ipyagent_sessions.session import Session


class Rescue(Struct, frozen=True):
    """One attempt: number `died` of `tries`, after `wait_s` seconds, by `command` in `folder`.

    An empty `command` means that nothing more is tried, or cannot be; `why` tells it.
    """

    died: int
    tries: int
    wait_s: float = 0.0
    command: tuple[str, ...] = ()
    folder: str = ""
    why: str = ""


def due(session: Session) -> Rescue | None:
    """What is to be done for the lost task of `session`; None when its policy is to ask, or somebody else sees to it.

    Raises what reading the session raises.
    """
    system = session.state().system_state
    lost = system.status is TaskState.SUSPENDED and system.reason == "worker_lost"
    if not lost or not system.recover or not system.holder.get("kernel") or session.held() or not session.native:
        return None
    died = _deaths(session, system.queued_seq)
    if died > system.recover:
        return Rescue(died, system.recover, why=f"it was lost {died} times in a row without getting on; a person is needed")
    body = session.blobs.read(system.environment_blob) if system.environment_blob else b"{}"
    environment = msgspec.json.decode(body, type=dict[str, object])
    python, folder = str(environment.get("executable") or ""), str(environment.get("cwd") or "")
    if not Path(python).is_file() or not Path(folder).is_dir():
        return Rescue(died, system.recover, why="the interpreter or the folder it ran with is not here; resume it by hand")
    program = (python, "-m", "ipyagent_sessions.cli", "--store", str(session.place.root))
    command = (*program, "resume", session.id, "--setup-cells", "--recover", f"auto:{system.recover}")
    return Rescue(died, system.recover, supervise.wait_after(died), command, folder)


def _deaths(session: Session, since: int) -> int:
    """How often in a row the task was lost, without an activity completed in between."""
    died = 0
    for event in session.events(since - 1):
        if event.event_type == "TaskSuspended" and msgspec.json.decode(event.payload).get("reason") == "worker_lost":
            died += 1
        elif event.event_type == "ActivityCompleted":
            done = msgspec.json.decode(event.payload, type=ActivityCompleted)
            died = died if done.kind in UNCOUNTED else 0
    return died
