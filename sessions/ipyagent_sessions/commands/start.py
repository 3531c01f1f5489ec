"""Commands that make or continue tasks."""

from __future__ import annotations

import argparse
from typing import Any

from msgspec import Struct

from ipyagent_sessions.commands import look, targets
from ipyagent_sessions.commands.check import policy_of
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.commands.follow import Screen, follow
from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.run.launch import launch, rerun, resume_task
from ipyagent_sessions.run.runner import Resume
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.run.worker import TaskHandle
from ipyagent_sessions.session import Session
from ipyagent_sessions.views.shown import Shown

DIFFERS = "a rerun calls everything again for real: it costs again, and results may differ"


class Ended(Struct):
    """A foreground task that completed: its value, and where it can be looked up."""

    session_id: str
    task_id: str
    value: Any


def run(door: Door, screen: Screen, options: argparse.Namespace) -> TaskHandle | Ended:
    """Start a workflow, or continue the unfinished task of the same call.

    In the foreground returns when it is completed and raises TaskNotCompleted for every other end.
    """
    workflow = targets.find(door, options.target)
    args, kwargs = targets.arguments(workflow, options.arguments, door.namespace)
    session = _session_of(door, options.session)
    started = launch(
        door.store,
        workflow,
        args,
        kwargs,
        options=_run_options(door, options),
        origin=door.origin,
        session=session,
        new=options.new or options.session == "new",
        once=options.once,
    )
    if started.note:
        screen.update(Shown(started.note))
    if started.handle is None:
        task_id = started.session.summary().task_id or ""
        screen.final(Shown(started.note))
        return Ended(started.session.id, task_id, started.value)
    return _go(door, screen, started.handle, background=options.bg)


def resume(door: Door, screen: Screen, options: argparse.Namespace) -> TaskHandle | Ended:
    """Continue a task.  Ends and raises as `run` does."""
    session = door.session(options.id)
    workflow = targets.recorded(door, session)
    handle = resume_task(
        session,
        workflow,
        options=RunOptions(actor=door.actor, headless=door.headless, policy=policy_of(door, None)),
        origin=door.origin,
        resume=Resume(tuple(options.redo), options.say),
        take_over=options.take_over,
    )
    return _go(door, screen, handle, background=options.bg)


def run_again(door: Door, screen: Screen, options: argparse.Namespace) -> TaskHandle | Ended:
    """Do a task again for real, once or several times, each as a new task in a new session."""
    session = door.session(options.id)
    if not options.yes:
        raise UsageError(
            f"{DIFFERS}",
            hint=f"say yes to that: {door.prefix} rerun {session.id} --yes; to only look: {door.prefix} replay {session.id}",
        )
    if options.n < 1:
        raise UsageError(f"--n {options.n}: how many times", hint="a whole number from 1")
    if options.n > 1 and options.bg:
        raise UsageError("--n and --bg do not go together", hint="reruns follow one another")
    workflow = targets.recorded(door, session)
    last: TaskHandle | Ended | None = None
    for i in range(options.n):
        screen.update(Shown(f"rerun {i + 1} of {options.n} of {session.id}; results may differ"))
        handle = rerun(session, door.store, workflow, options=_run_options(door, options), origin=door.origin)
        last = _go(door, screen, handle, background=options.bg)
    assert last is not None
    return last


def fork(door: Door, options: argparse.Namespace) -> Shown:
    """A new session that shares the log up to an event; lists what still exists from after it."""
    session = door.session(options.id)
    at = look.at_of(session, options.at)
    child = session.fork(at, direction=options.direction, title=options.title)
    parent = child.header.parent
    assert parent is not None
    lines = [f"forked {parent.session} at event {parent.seq} into {child.id}; the parent is unchanged"]
    kept = effects_after(session, parent.seq)
    if kept:
        lines.append("still there from after that event, and not undone:")
        lines += [f"  {line}" for line in kept[:20]]
        if len(kept) > 20:
            lines.append(f"  and {len(kept) - 20} more")
    lines.append(f"continue it with: {door.prefix} resume {child.id}")
    return Shown(
        "\n".join(lines), None, {"session_id": child.id, "parent": parent.session, "at": parent.seq, "still_there": kept}
    )


def effects_after(session: Session, seq: int) -> list[str]:
    """What activities with effects and files of `session` left behind after event `seq` (R115)."""
    effects = {i: r.effect for i, r in session.state().business_state.results.items()}
    out = []
    for event in session.events(after=seq):
        if event.event_type == "FileWritten":
            out.append(f"file {look.payload_of(event).get('path')}")
        elif event.event_type == "ActivityCompleted" and effects.get(event.activity_id or "", "none") != "none":
            out.append(f"{effects[event.activity_id or '']} activity {event.activity_id}")
    return out


def _session_of(door: Door, wanted: str | None) -> Session | None:
    if wanted is None or wanted == "new":
        return None
    try:
        return door.session(wanted)
    except NotFound:
        for listed in door.store.sessions():
            if listed.summary is not None and listed.summary.title == wanted:
                return door.store.session(listed.session_id)
        return door.store.create(title=wanted, notebook=door.origin.notebook)


def _run_options(door: Door, options: argparse.Namespace) -> RunOptions:
    return RunOptions(
        durability=options.durability,
        actor=door.actor,
        headless=door.headless,
        policy=policy_of(door, None),
        title=options.title,
        pickle=getattr(options, "pickle", False),
    )


def _go(door: Door, screen: Screen, handle: TaskHandle, *, background: bool) -> TaskHandle | Ended:
    if background:
        return handle
    follow(door, handle, screen)
    return Ended(handle.session.id, handle.task_id, handle.result())
