"""Declared compensations: in reverse order, each announced on disk before it runs (R158, R159)."""

from __future__ import annotations

import asyncio
import inspect
from typing import Final

from ipyagent_sessions import payloads as p
from ipyagent_sessions.run import frames
from ipyagent_sessions.run.keys import belonging
from ipyagent_sessions.run.naming import is_within
from ipyagent_sessions.run.task import TaskRun, TaskStop

UNDOING: Final = "undoing"
"""What the log says of an activity whose compensation begins; `ActivityCompensated` says how it ended."""


async def compensate(run: TaskRun, why: str, *, stage: str = "") -> tuple[list[str], list[str]]:
    """Run the declared compensations of completed activities (of those inside of `stage`, if one is named), the last one
    first.

    Returns the ids compensated and the ids whose compensation failed, for which a person is needed.  Raises TaskStop when the
    lease is lost, and when the disk refuses: then nothing more is undone, and the task waits to end (`why`) until a resume.
    """
    results = run.state.business_state.results
    todo = sorted(
        (i for i, r in results.items() if i in run.compensators and r.ok and not r.compensated and is_within(i, stage)),
        key=lambda i: results[i].seq,
        reverse=True,
    )
    done, broken = [], []
    for activity_id in todo:
        undo = run.compensators[activity_id]
        name = results[activity_id].name
        _intend(run, activity_id, why)
        try:
            with belonging(run.task_id, activity_id):
                ran = await run.threads.submit(undo)
                if inspect.isawaitable(ran.value):
                    await ran.value
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # whatever it raises, the others have their turn
            _still_held(run)
            broken.append(activity_id)
            said = frames.text_of(error)
            undone = p.ActivityCompensated(name, False, f"{type(error).__name__}: {said}")
            run.emit("ActivityCompensated", undone, activity_id=activity_id)
            alarm = f"undoing {activity_id} failed: {said}; a person is needed"
            run.emit("AlarmRaised", p.AlarmRaised("compensation", alarm))
        else:
            _still_held(run)
            done.append(activity_id)
            run.emit("ActivityCompensated", p.ActivityCompensated(name), activity_id=activity_id)
        run.sync()
    _still_held(run)
    return done, broken


def _intend(run: TaskRun, activity_id: str, why: str) -> None:
    """Log that an undo begins, and make that and all before it durable: an undo is an effect."""
    _still_held(run)
    begun = run.emit("ActivityProgressed", p.ActivityProgressed(text=UNDOING), activity_id=activity_id)
    run.sync()
    _still_held(run)
    if run.appender.durable_seq < begun.seq:
        raise TaskStop("suspend", reason="persistence", detail=f"{why}; undoing {activity_id} waits for the disk")


def _still_held(run: TaskRun) -> None:
    """Raise TaskStop when the lease is lost: a holder that was fenced undoes nothing more and writes nothing more."""
    if run.appender.lease.fenced():
        run.stop("lease_lost", reason="another holder has taken over")
    if run.stopping is not None and run.stopping.why == "lease_lost":
        raise run.stopping
