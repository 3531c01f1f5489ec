"""Commands that make or continue tasks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ipyagent_sessions.agent import budget
from ipyagent_sessions.commands import look, outside, targets
from ipyagent_sessions.commands.check import memory_policy_of, policy_of, settings_files
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.commands.follow import Screen, follow
from ipyagent_sessions.errors import ConfigError, NotFound, TaskNotCompleted, UsageError
from ipyagent_sessions.events import payload_of
from ipyagent_sessions.lifecycle import ENDED, TaskState
from ipyagent_sessions.retention import clean
from ipyagent_sessions.run import outage
from ipyagent_sessions.run.beginning import Resume
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.run.launch import launch, refuse_known_end, rerun, resume_task
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.run.worker import TaskHandle
from ipyagent_sessions.session import Session
from ipyagent_sessions.textsafe import plain
from ipyagent_sessions.views.shown import Shown

if TYPE_CHECKING:
    from ipyagent_sessions.effects.isolation import Made

ISOLATED = "files of its tools and of ctx.folder are there; the kernel's variables, run_python and what others hold are shared"
SHARED = "both write in one folder, and their effects are not kept apart; --isolate gives the fork a folder of its own"
DIFFERS = "a rerun calls everything again for real: it costs again, and results may differ"


class Ended(Struct):
    """A foreground task that completed: its value, where it can be looked up, and whether it was a workflow or an agent."""

    session_id: str
    task_id: str
    value: Any
    kind: str = "workflow"


def run(door: Door, screen: Screen, options: argparse.Namespace) -> TaskHandle | Ended:
    """Start a workflow, or continue the unfinished task of the same call.

    In the foreground returns when it is completed and raises TaskNotCompleted for every other end.
    """
    workflow = targets.find(door, options.target)
    args, kwargs = targets.arguments(workflow, options.arguments, door.namespace)
    if workflow.kind == "agent":
        args = tuple(door.without_secrets(arg) if isinstance(arg, str) else arg for arg in args)
    session = session_of(door, options.session)
    started = launch(
        door.store,
        workflow,
        args,
        kwargs,
        options=_run_options(door, options, workflow),
        origin=door.origin,
        session=session,
        new=options.new or options.session == "new",
        once=options.once,
    )
    if started.handle is None:
        task_id = started.session.summary().task_id or ""
        screen.final(Shown(started.note))
        return Ended(started.session.id, task_id, started.value)
    if started.note:
        screen.update(Shown(started.note))
    return go(door, screen, started.handle, background=options.bg)


def resume(door: Door, screen: Screen, options: argparse.Namespace) -> TaskHandle | Ended:
    """Continue a task.  Ends and raises as `run` does."""
    session = door.session(options.id, current=True)
    session.refuse_foreign()
    if not targets.is_foreign(session.state().system_state):
        refuse_known_end(session)
    workflow = targets.recorded(door, session, setup_cells=options.setup_cells)
    handle = resume_task(
        session,
        workflow,
        options=RunOptions(
            actor=door.actor,
            headless=door.headless,
            policy=policy_of(door, None),
            settings=settings_files(door),
            recover=outage.policy(options.recover),
        ),
        origin=door.origin,
        resume=Resume(tuple(options.redo), options.say, budget.parse(options.budget)),
        take_over=options.take_over,
    )
    return go(door, screen, handle, background=options.bg)


def run_again(door: Door, screen: Screen, options: argparse.Namespace) -> TaskHandle | Ended:
    """Do a task again for real, once or several times, each as a new task in a new session."""
    session = door.session(options.id, current=True)
    if not options.yes:
        raise UsageError(
            f"{DIFFERS}",
            hint=f"say yes to that: {door.prefix} rerun {session.id} --yes; to only look: {door.prefix} replay {session.id}",
        )
    if options.n > 1 and options.bg:
        raise UsageError("--n and --bg do not go together", hint="reruns follow one another")
    workflow = targets.recorded(door, session, setup_cells=options.setup_cells)
    last: TaskHandle | Ended | None = None
    for i in range(options.n):
        screen.update(Shown(f"rerun {i + 1} of {options.n} of {session.id}; results may differ"))
        handle = rerun(session, door.store, workflow, options=_run_options(door, options, workflow), origin=door.origin)
        last = go(door, screen, handle, background=options.bg)
    assert last is not None
    return last


def fork(door: Door, options: argparse.Namespace) -> Shown:
    """A new session that shares the log up to an event; lists what still exists from after it.

    Without `--at` that is the newest event; for a failed or cancelled task the last one before its end, so that it can go on,
    and for one whose check failed as often as it may the last good checkpoint.
    """
    session = door.session(options.id)
    at = look.at_of(session, options.at)
    at = before_end(session) if at is None else at
    made: Made | None = None
    if options.isolate:
        from ipyagent_sessions.effects import isolation, rollback

        source = rollback.folder_of(session, door.folder)
        child, made = isolation.fork(session, at, source, direction=options.direction, title=options.title)
    else:
        child = session.fork(at, direction=options.direction, title=options.title)
    parent = child.header.parent
    assert parent is not None
    lines = [f"forked {parent.session} at event {parent.seq} into {child.id}; the parent is unchanged"]
    kept = outside.still_there(session, parent.seq)
    lines += outside.short(door, session, kept, "still there from after that event, and not undone:")
    if made is not None:
        lines += [*made.told, ISOLATED]
    else:
        lines.append(SHARED)
    lines.append(_how_to_go_on(door, child))
    return Shown(
        "\n".join(lines),
        None,
        {
            "session_id": child.id,
            "parent": parent.session,
            "at": parent.seq,
            "still_there": kept,
            "workspace": str(made.folder) if made else None,
        },
    )


def before_end(session: Session) -> int | None:
    """The event before a failed or cancelled task's end, from which it can go on; None when its task did not end so."""
    if session.state().system_state.status not in (TaskState.FAILED, TaskState.CANCELLED):
        return None
    end = max((e for e in session.events() if e.event_type in ("TaskFailed", "TaskCancelled")), key=lambda e: e.seq)
    body = payload_of(end)
    return int(body["last_checkpoint"]) if body.get("cause") == "logic" else end.seq - 1


def _how_to_go_on(door: Door, child: Session) -> str:
    state = child.state()
    if state.system_state.status in ENDED:
        agent = state.system_state.kind == "agent"
        started = targets.asking(door, child.id) if agent else f"{door.prefix} run TARGET --session {child.id}"
        return f"its task has ended there: fork earlier with --at, or start a new one with {started}"
    if targets.is_foreign(state.system_state):
        return f"its turn was {state.system_state.target}'s: go on with {targets.going_on(door, child)}"
    failed = [key.partition("/")[2] for key, done in state.business_state.results.items() if not done.ok]
    redo = "".join(f" --redo {plain(name, 80)}" for name in failed[:3])
    return f"continue it with: {door.prefix} resume {child.id}{redo}" + (
        " (without --redo a recorded failure is raised again)" if redo else ""
    )


def session_of(door: Door, wanted: str | None) -> Session | None:
    """The session of an id or a title, a new one of that title if there is none; None when none is wanted or a new one is."""
    if wanted is None or wanted == "new":
        return None
    return known(door, wanted) or door.store.create(title=wanted, notebook=door.origin.notebook)


def known(door: Door, wanted: str) -> Session | None:
    """The session of an id or a title, None when there is none.  Raises UsageError when several fit."""
    try:
        return door.session(wanted)
    except NotFound:
        return None


def _run_options(door: Door, options: argparse.Namespace, workflow: Workflow) -> RunOptions:
    limits = budget.parse(getattr(options, "budget", ""))
    if limits and workflow.kind != "agent":
        raise UsageError(
            f"--budget: {workflow.name} is no agent", hint="a workflow's time is bounded by @workflow(timeout=...)"
        )
    return RunOptions(
        durability=options.durability,
        actor=door.actor,
        headless=door.headless,
        policy=policy_of(door, None),
        settings=settings_files(door),
        title=options.title,
        pickle=getattr(options, "pickle", False),
        model=workflow.model,
        budget=limits,
        recover=outage.policy(getattr(options, "recover", None)),
    )


def go(door: Door, screen: Screen, handle: TaskHandle, *, background: bool) -> TaskHandle | Ended:
    if background:
        return handle
    follow(door, handle, screen)
    if told := _cleaned(door):
        screen.update(Shown(told))
    try:
        return Ended(handle.session.id, handle.task_id, handle.result(), handle.kind)
    except TaskNotCompleted as error:
        left = outside.rest_of_task(door, handle.session) if error.state in ("failed", "cancelled") else []
        if left:
            screen.final(Shown("\n".join(left)))
        error.hint = _hint(door, handle.session, error.state)
        raise


def _cleaned(door: Door) -> str:
    """Let go what has outlived its time, and say so; settings that became wrong since the start do not cost a task its end."""
    try:
        return clean.by_itself(door.store, policy_of(door, None), memory_policy_of(door))
    except ConfigError as error:
        return f"nothing was cleaned up: {error}"


def _hint(door: Door, session: Session, state: str) -> str:
    """What a person can do about a task that did not complete."""
    asks = door.prefix
    if state == "failed":
        told = f"what happened: {asks} log {session.id}"
        if session.state().system_state.reason == "logic":  # then the error itself says where to go on
            return told
        return f"{told}; go on from just before the failure: {asks} fork {session.id}"
    pending = [a for a in session.state().execution_state.approvals.values() if a.answer is None]
    if state == "suspended" and pending and all(a.kind == "outcome" for a in pending):
        return f"say what happened with {asks} approve {session.id} --choice ..., then: {asks} resume {session.id}"
    if state == "suspended" and pending:
        return f"answer with {asks} approve {session.id} or {asks} deny {session.id}, then: {asks} resume {session.id}"
    if state == "suspended" and session.state().system_state.reason in ("budget", "step_cap"):
        return f"allow it more and continue: {asks} resume {session.id} --budget steps=20 (or usd=, tokens=, time=)"
    return f"continue: {asks} resume {session.id}" if state in ("interrupted", "suspended") else ""
