"""Drives one execution of a task from its first event to its last: start or resume, run the body, log how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from ipyagent_sessions import codec
from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import (
    ControlRefused,
    IdentityError,
    IpyagentError,
    LeaseLost,
    NotSerialisable,
    PersistenceError,
    UsageError,
)
from ipyagent_sessions.lifecycle import ENDED, TaskState
from ipyagent_sessions.log import inbox, live
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.blobs import Blobs
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.run import control, ending, environment
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.run.pulse import Pulse
from ipyagent_sessions.run.task import RunOptions, TaskRun, TaskStop
from ipyagent_sessions.session import Session, summarise


class Outcome(Struct):
    """How an execution ended.  `value` is the workflow's result, `error` what it raised; `state` may also be "lease lost"."""

    task_id: str
    session_id: str
    state: str
    value: Any = None
    error: Exception | None = None
    reason: str = ""
    detail: str = ""


class Resume(Struct, frozen=True):
    """How to go on: `redo` names activities (NAME or NAME:KEY) whose results are dropped, `say` is a new instruction."""

    redo: tuple[str, ...] = ()
    say: str = ""


def queue(
    appender: Appender,
    session: Session,
    workflow: Workflow,
    arguments: bytes,
    options: RunOptions,
    *,
    run_key: str,
    cell: str | None,
    retry_of: str | None = None,
    rerun_of: str | None = None,
) -> str:
    """Log that a task is asked for, durably, with everything it was given; returns its id."""
    state = appender.state
    system = state.system_state
    if system.status is not None and system.status not in ENDED:
        raise ControlRefused(
            f"session {session.id} has a task that is {system.status.value}: {system.task_id}",
            hint="resume or cancel it, or start in a session of its own",
        )
    task_id = f"{session.id}.{len(state.tasks) + 1}"
    blobs: dict[str, bytes] = {}
    recorded, args_blob = appender.put(arguments, blobs)
    source = workflow.source_text().encode()
    source_name = Blobs.name(source) if source else None
    if source_name:
        blobs[source_name] = source
    appender.emit(
        "TaskQueued",
        p.TaskQueued(
            workflow.target,
            "workflow",
            ev.clean(options.title or workflow.name)[0],
            recorded,
            args_blob,
            run_key,
            cell,
            options.durability,
            source_name,
            workflow.timeout_s,
            retry_of,
            rerun_of,
            workflow.default_effect,
        ),
        task_id=task_id,
        actor=options.actor,
        blobs=blobs,
    )
    appender.barrier()
    live.write_summary(session.layout, summarise(session.id, state), appender.disk)
    return task_id


def recorded_arguments(session: Session, state: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments the current task was queued with."""
    body = msgspec.json.decode(session.event(state.system_state.queued_seq).payload, type=p.TaskQueued)
    packed = session.blobs.read(body.args_blob) if body.args_blob else bytes(memoryview(body.args))
    listed = codec.loads(packed, trust_pickle=True)
    return tuple(listed[0]), dict(listed[1]) if len(listed) > 1 else {}


async def drive(
    session: Session,
    appender: Appender,
    workflow: Workflow,
    options: RunOptions,
    resume: Resume | None = None,
    *,
    on_run: Callable[[TaskRun], None] | None = None,
) -> Outcome:
    """Run the session's current task until it ends or stops; the appender stays open.

    Raises ControlRefused when there is nothing to run.
    """
    system = appender.state.system_state
    if system.task_id is None or system.status is None or system.status in ENDED:
        what = f"task {system.task_id} is {system.status}" if system.task_id else f"session {session.id} has no task"
        raise ControlRefused(
            f"{what}, there is nothing to resume", hint="start a new task, or fork the session at a checkpoint"
        )
    args, kwargs = recorded_arguments(session, appender.state)
    workflow.bind(args, kwargs)
    run = TaskRun(session, appender, system.task_id, options, workflow.default_effect)
    if on_run is not None:
        on_run(run)
    pulse = Pulse(run, lambda controls: _attend(run, controls), lambda: _tick(run))
    try:
        _begin(run, workflow, resume or Resume())
        pulse.start()
        try:
            outcome = await _body(run, workflow, args, kwargs)
        finally:
            pulse.stop()
        _forget_cancellations(run)
        return outcome
    except LeaseLost as error:
        return _outcome(run, state="lease lost", detail=error.message)
    finally:
        appender.listeners.clear()
        run.threads.close()


def _begin(run: TaskRun, workflow: Workflow, resume: Resume) -> None:
    """Log the start, or what was found and that it goes on."""
    system = run.state.system_state
    began = run.clock.monotonic()
    now = environment.snapshot()
    name, body = _blob(now)
    holder = run.appender.lease.holder.as_dict()
    if system.status is TaskState.QUEUED:
        deadline = None
        if workflow.timeout_s is not None:
            deadline = ev.Stamper()(run.clock.now() + workflow.timeout_s)
        run.move(
            TaskState.RUNNING,
            "TaskStarted",
            p.TaskStarted(1, holder, name, deadline, run.options.policy.interval_s),
            blobs={name: body},
        )
        return
    redone = _fits(run, resume.redo)
    lost = control.record_loss(run.appender)
    control.expire(run.appender)
    opened = dict(run.state.execution_state.active_activities)
    differences = _environment_differences(run, now) + environment.file_differences(run.state.business_state.files)
    not_restored = ["kernel variables", "running calls", "child processes"] if lost or system.reason == "worker_lost" else []
    cause = system.reason or "resumed"
    from_seq = run.state.seq
    run.move(
        TaskState.RUNNING,
        "TaskResumed",
        p.TaskResumed(system.attempt + 1, cause, ev.clean(resume.say)[0], not_restored, differences, holder),
        actor=run.options.actor,
    )
    if differences:
        run.emit("AlarmRaised", p.AlarmRaised("changed_since", "; ".join(differences)))
    for name, activities in redone.items():
        run.emit(
            "ControlRequested",
            p.ControlRequested(run.session.place.ids(), "redo", args={"activities": activities, "name": name}),
            actor=run.options.actor,
        )
    if cause == "worker_lost":
        loaded = run.appender.loaded
        repeat = sorted(i for i, a in opened.items() if a.effect != "irreversible" and a.kind != "sleep")
        ask = sorted(i for i, a in opened.items() if a.effect == "irreversible")
        execution = run.state.execution_state
        of = f" of {execution.total}" if execution.total is not None else ""
        again = f"{len(repeat)} open activities run again" if len(repeat) != 1 else "1 open activity runs again"
        sentence = f"recovered at event {from_seq}: {execution.done}{of} activities are done, {again}" + (
            f", {len(ask)} need an answer" if ask else ""
        )
        run.emit(
            "RecoveryCompleted",
            p.RecoveryCompleted(
                from_seq,
                cause,
                sentence,
                loaded.checkpoint,
                loaded.refused,
                round((run.clock.monotonic() - began) * 1000, 3),
                0,
                repeat,
                ask,
                not_restored,
            ),
        )
    run.sync()
    if run.stopping is None:  # with one, the body recalls what is done and begins nothing
        run.stopping = _unfinished_stop(run, lost=cause == "worker_lost")


def _fits(run: TaskRun, wanted: tuple[str, ...]) -> dict[str, list[str]]:
    """The recorded activities that each name of `--redo` means.  Raises UsageError for a name that fits none."""
    found: dict[str, list[str]] = {}
    for name in wanted:
        fits = [
            i
            for i in run.state.business_state.results
            if "/" in i
            and (i.partition("/")[2] == name or i == name or i.partition("/")[2].split(":")[0].split("#")[0] == name)
        ]
        if not fits:
            raise UsageError(
                f"--redo {name}: no recorded activity of that name", hint="`log` lists them; write NAME or NAME:KEY"
            )
        found[name] = fits
    return found


def _environment_differences(run: TaskRun, now: dict[str, Any]) -> list[str]:
    name = run.state.system_state.environment_blob
    if name is None:
        return []
    try:
        return environment.differences(msgspec.json.decode(run.session.blobs.read(name)), now)
    except IpyagentError as error:
        return [f"the environment of the first start is not known: {error.message}"]


def _blob(value: Any) -> tuple[str, bytes]:
    body = msgspec.json.encode(value)
    return Blobs.name(body), body


async def _body(run: TaskRun, workflow: Workflow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
    ctx = Context(run)

    async def whole() -> Any:
        try:
            value = await workflow.function(ctx, *args, **kwargs)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            raise RuntimeError(f"the workflow raised {type(error).__name__}") from error
        ctx.check_awaited()
        return value

    run.body = run.loop.create_task(whole())
    await asyncio.wait({run.body})
    if run.body.cancelled():
        error: BaseException | None = run.stopping or RuntimeError("the workflow cancelled itself")
    else:
        error = run.body.exception()
    if error is None:
        lost = ending.completed(run, run.body.result())
        return _outcome(run, value=run.body.result(), detail=lost or "")
    if isinstance(error, TaskStop):
        return await _stopped(run, error)
    if isinstance(error, PersistenceError):
        return await _stopped(run, TaskStop("suspend", reason="persistence", detail=error.message))
    if isinstance(error, IdentityError | UsageError | NotSerialisable):
        ending.suspended(run, TaskStop("suspend", reason="definition", detail=error.message))
        return _outcome(run, error=error)
    assert isinstance(error, Exception)
    await ending.failed(run, error, "error")
    return _outcome(run, error=error)


async def _stopped(run: TaskRun, stop: TaskStop) -> Outcome:
    if stop.why == "lease_lost":
        return _outcome(run, state="lease lost", detail=stop.reason)
    if stop.why == "cancel":
        await ending.cancelled(run, stop)
    elif stop.why == "deadline":
        await ending.failed(run, TimeoutError(stop.detail), "timeout")
    elif stop.why == "suspend" or run.state.system_state.status is TaskState.SUSPENDED:
        ending.suspended(run, stop)
    else:
        ending.interrupted(run, stop)
    return _outcome(run)


def _outcome(run: TaskRun, *, state: str = "", value: Any = None, error: Exception | None = None, detail: str = "") -> Outcome:
    system = run.state.system_state
    return Outcome(
        run.task_id, run.session.id, state or str(system.status), value, error, system.reason, detail or system.detail
    )


# What arrives while it runs


def _attend(run: TaskRun, controls: list[Control]) -> None:
    """Log and do what people asked for."""
    for asked in controls:
        refusal = control.judge(run.state, asked)
        if not refusal and asked.action == "resume":
            refusal = "it is held here already and goes on by itself once nothing is missing"
        logged = control.log(run.appender, asked, refusal)
        if logged is not None and not refusal and asked.action == "checkpoint":  # in one commit with its request
            run.checkpoint("manual", str(asked.args.get("label", "")), actor=asked.actor)
        run.sync()
        run.appender.disk.seam("after control logged")
        cancels = asked.action == "cancel" and not refusal  # stays until it is done: a death before that must not lose it
        durable = logged is None or run.appender.durable_seq >= logged.seq
        if durable and not cancels:
            inbox.remove(run.session.layout, asked.id)
        if cancels or (logged is not None and (not refusal or logged.event_type == "ApprovalResolved")):
            _apply(run, asked)


def _forget_cancellations(run: TaskRun) -> None:
    """Take the cancellations of an ended task out of the inbox; they were logged when they came."""
    if run.state.system_state.status in ENDED and run.appender.durable_seq >= run.state.seq:
        for asked in inbox.waiting(run.session.layout):
            if asked.action == "cancel" and asked.id in run.state.controls:
                inbox.remove(run.session.layout, asked.id)


def _apply(run: TaskRun, asked: Control) -> None:
    if asked.action == "pause":
        run.stop("abort" if run.stopping is not None else "pause", actor=asked.actor)
    elif asked.action == "cancel":
        run.stop("cancel", actor=asked.actor, reason=str(asked.args.get("reason", "")))
    elif asked.action == "answer":
        answered(run, str(asked.args["approval_id"]), asked.actor)


def answered(run: TaskRun, approval_id: str, actor: str) -> None:
    """Let the body go on that waited for this answer."""
    run.works_again(actor)
    future = run.answers.get(approval_id)
    if future is not None and not future.done():
        future.set_result(None)
    run.summarise()


def _tick(run: TaskRun) -> None:
    """What wall time brings: a timed checkpoint, an expired approval, the task's deadline."""
    run.notice()
    if run.state.system_state.status in ENDED or run.stopping is not None:
        return
    if run.triggers.due():
        run.checkpoint("time")
    for approval_id in control.expire(run.appender):
        answered(run, approval_id, "rule:expiry")
    over = _overdue(run)
    if over:
        run.stop("deadline", detail=over)


def _overdue(run: TaskRun) -> str:
    deadline = run.state.system_state.deadline
    if deadline is None or ev.seconds_of(deadline) > run.clock.now():
        return ""
    return f"the task's time was over at {deadline}"


def _unfinished_stop(run: TaskRun, *, lost: bool) -> TaskStop | None:
    """A stop still to be carried out: the deadline has passed, or a cancel was accepted and then its holder was lost."""
    over = _overdue(run)
    if over:
        return TaskStop("deadline", detail=over)
    state = run.state
    if not lost or not state.controls:
        return None
    for event in run.session.events(state.system_state.queued_seq, lineage=False):
        if event.event_type == "ControlRequested":
            asked = msgspec.json.decode(event.payload, type=p.ControlRequested)
            if asked.action == "cancel" and asked.outcome == "accepted":
                return TaskStop("cancel", actor=event.actor, reason=str(asked.args.get("reason", "")))
    return None
