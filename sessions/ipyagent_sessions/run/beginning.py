"""What is logged before the body runs: that a task is asked for, that it starts, or what was found and that it goes on."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ipyagent_sessions import codec
from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import ControlRefused, IpyagentError, UsageError
from ipyagent_sessions.lifecycle import ENDED, TaskState, check
from ipyagent_sessions.log import live
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.blobs import Blobs
from ipyagent_sessions.run import control, environment, recovery
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.run.task import RunOptions, TaskRun, TaskStop
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.state import State


class Resume(Struct, frozen=True):
    """How to go on: `redo` names activities (NAME or NAME:KEY) whose results are dropped, `say` is a new instruction,
    `more` is added to the budget."""

    redo: tuple[str, ...] = ()
    say: str = ""
    more: dict[str, float] = {}


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
    if control.record_loss(appender):
        appender.barrier()
        live.write_summary(session.layout, summarise(session.id, appender.state), appender.disk)
    state = appender.state
    system = state.system_state
    if system.status is not None and system.status not in ENDED:
        raise ControlRefused(
            f"session {session.id} has a task that is {system.status.value}: {system.task_id}",
            hint="resume or cancel it, or start in a session of its own",
        )
    task_id = f"{session.id}.{state.begun + 1}"
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
            workflow.kind,
            ev.title(options.title or workflow.name),
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
            options.pickle,
            options.model,
            options.budget,
            options.recover or 0,
        ),
        task_id=task_id,
        actor=options.actor,
        blobs=blobs,
    )
    appender.barrier()
    live.write_summary(session.layout, summarise(session.id, state), appender.disk)
    return task_id


Call = tuple[tuple[Any, ...], dict[str, Any]]


def recorded_arguments(session: Session, state: Any) -> Call:
    """The arguments the current task was queued with."""
    body = msgspec.json.decode(session.event(state.system_state.queued_seq).payload, type=p.TaskQueued)
    packed = session.blobs.read(body.args_blob) if body.args_blob else bytes(memoryview(body.args))
    listed = codec.loads(packed)
    return tuple(listed[0]), dict(listed[1]) if len(listed) > 1 else {}


def begin(run: TaskRun, workflow: Workflow, resume: Resume) -> None:
    """Log the start of a queued task, or that a stopped one goes on.  Raises UsageError for a `redo` that fits nothing."""
    now = {**environment.snapshot(), "config": _config(run.options)}
    if run.state.system_state.status is TaskState.QUEUED:
        _start(run, workflow, now)
    else:
        _go_on(run, resume, now)


def _config(options: RunOptions) -> dict[str, Any]:
    """The settings that a task runs under, flat, as JSON has them."""
    policy = {f"checkpoint.{name}": value for name, value in msgspec.json.decode(msgspec.json.encode(options.policy)).items()}
    files = {f"settings.{layer}": digest for layer, digest in options.settings.items()}
    return policy | files


def _start(run: TaskRun, workflow: Workflow, now: dict[str, Any]) -> None:
    snapshot = msgspec.json.encode(now)
    name = Blobs.name(snapshot)
    over = None if workflow.timeout_s is None else ev.Stamper()(run.clock.now() + workflow.timeout_s)
    holder = run.appender.lease.holder.as_dict()
    started = p.TaskStarted(1, holder, name, over, run.options.policy.interval_s)
    run.move(TaskState.RUNNING, "TaskStarted", started, blobs={name: snapshot})


def _go_on(run: TaskRun, resume: Resume, now: dict[str, Any]) -> None:
    system = run.state.system_state
    began = run.clock.monotonic()
    redone = to_redo(run.state, resume.redo)
    durable = ev.seconds_of(run.state.updated_at)
    control.record_loss(run.appender)
    control.expire(run.appender)
    opened = dict(run.state.execution_state.active_activities)
    cause, from_seq = system.reason or "resumed", run.state.seq
    lost = cause == "worker_lost"
    loss = recovery.loss_of(run, durable) if lost else None
    before, problems = _environment_before(run)
    differences = problems + (environment.differences(before, now) if before else [])
    differences += environment.file_differences(run.state.business_state.files, run.session.workspace)
    resumed = p.TaskResumed(
        system.attempt + 1,
        cause,
        ev.clean(resume.say)[0],
        recovery.not_restored(run, lost=lost),
        differences,
        run.appender.lease.holder.as_dict(),
        run.options.recover,
    )
    check(system.status, TaskState.RUNNING, run.options.actor)
    run.emit("TaskResumed", resumed, actor=run.options.actor)
    if differences:
        run.emit("AlarmRaised", p.AlarmRaised("changed_since", "; ".join(differences)))
    for text in recovery.unseen_damage(run):
        if f"damage: {text}" not in run.state.alarms:
            run.emit("AlarmRaised", p.AlarmRaised("damage", text))
    configured = _reconfigured(before.get("config", {}), now["config"])
    if configured:
        run.emit("ConfigChanged", p.ConfigChanged(configured), actor=run.options.actor)
    for name, activities in redone.items():
        asked = p.ControlRequested(run.session.place.ids(), "redo", args={"activities": activities, "name": name})
        run.emit("ControlRequested", asked, actor=run.options.actor)
    if resume.more:
        asked = p.ControlRequested(run.session.place.ids(), "extend", args={"budget": resume.more})
        run.emit("ControlRequested", asked, actor=run.options.actor)
    if loss is not None:
        took_s = run.clock.monotonic() - began
        wrong = recovery.violations(run.state)
        run.emit("RecoveryCompleted", recovery.completed(run, opened, from_seq, took_s, loss, differences, wrong))
        recovery.check(run, wrong)
    run.sync()  # all of it in one
    run.summarise()
    if run.stopping is None:  # with one, the body recalls what is done and begins nothing
        run.stopping = _unfinished_stop(run, cut=lost or cause == "persistence")


def to_redo(state: State, wanted: tuple[str, ...]) -> dict[str, list[str]]:
    """The recorded activities that each name of `--redo` means.  Raises UsageError for a name that fits none."""
    found: dict[str, list[str]] = {}
    for name in wanted:
        fits = [
            i
            for i in state.business_state.results
            if "/" in i
            and (i.partition("/")[2] == name or i == name or i.partition("/")[2].split(":")[0].split("#")[0] == name)
        ]
        if not fits:
            raise UsageError(
                f"--redo {name}: no recorded activity of that name", hint="ipyagent log lists them; write NAME or NAME:KEY"
            )
        found[name] = fits
    return found


def _environment_before(run: TaskRun) -> tuple[dict[str, Any], list[str]]:
    """The environment of the first start, empty when it is not known, and why it is not."""
    name = run.state.system_state.environment_blob
    if name is None:
        return {}, []
    try:
        return dict(msgspec.json.decode(run.session.blobs.read(name))), []
    except IpyagentError as error:
        return {}, [f"the environment of the first start is not known: {error.message}"]


def _reconfigured(before: dict[str, Any], now: dict[str, Any]) -> dict[str, list[Any]]:
    """The settings that differ from those of the first start, each with its value then and now.  What a door did not tell,
    then or now, is not compared."""
    both = sorted(before.keys() & now.keys())
    return {name: [before[name], now[name]] for name in both if before[name] != now[name]}


def _unfinished_stop(run: TaskRun, *, cut: bool) -> TaskStop | None:
    """A stop still to be carried out: the deadline has passed, or a cancel was accepted and cut short."""
    over = overdue(run)
    if over:
        return TaskStop("deadline", detail=over)
    state = run.state
    if not cut or not state.controls:
        return None
    for event in run.session.events(state.system_state.queued_seq, lineage=False):
        if event.event_type == "ControlRequested":
            asked = msgspec.json.decode(event.payload, type=p.ControlRequested)
            if asked.action == "cancel" and asked.outcome == "accepted":
                return TaskStop("cancel", actor=event.actor, reason=str(asked.args.get("reason", "")))
    return None


def overdue(run: TaskRun) -> str:
    deadline = run.state.system_state.deadline
    if deadline is None or ev.seconds_of(deadline) > run.clock.now():
        return ""
    return f"the task's time was over at {deadline}"
