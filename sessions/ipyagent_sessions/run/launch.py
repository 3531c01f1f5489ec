"""Start a task, or continue the one that the same call started before.

The same notebook, cell, target and arguments find each other by the `run_key`: running a cell again after a crash
continues its unfinished task (R007; Restart and Run All is what people do), `new` starts another, `once` returns the
result of a completed one."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from ipyagent_sessions import codec
from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import ControlRefused, DamageError, IpyagentError, NewerFormat, ResultLost, UsageError
from ipyagent_sessions.lifecycle import ENDED, TaskState
from ipyagent_sessions.log import live
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder, this_process
from ipyagent_sessions.run import identity
from ipyagent_sessions.run.beginning import Call, Resume, queue, recorded_arguments, to_redo
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.run.worker import TaskHandle
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.state import State
from ipyagent_sessions.store import Listed, Store


class Origin(Struct, frozen=True):
    """Where a task is asked for: the notebook's path and the cell's id, when there are any, and who holds the lease then."""

    notebook: str | None = None
    cell: str | None = None
    holder: Holder | None = None


class Launched(NamedTuple):
    """`handle` is None when `once` found a completed task, whose value is `value`.  `note` says what was found, if
    anything."""

    session: Session
    handle: TaskHandle | None
    value: Any
    note: str


def run_key(origin: Origin, workflow: Workflow, arguments: bytes) -> str:
    """16 hex digits that identify notebook, cell, target and arguments."""
    parts = "\0".join((origin.notebook or "", origin.cell or "", workflow.target))
    return hashlib.blake2b(parts.encode() + b"\0" + arguments, digest_size=8).hexdigest()


def launch(
    store: Store,
    workflow: Workflow,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    options: RunOptions | None = None,
    origin: Origin | None = None,
    session: Session | None = None,
    into: Callable[[], Session | None] | None = None,
    new: bool = False,
    once: bool = False,
    resume: Resume | None = None,
) -> Launched:
    """Start `workflow`, or continue its unfinished task.

    A new task begins in `session`, or in the one that `into` gives once it is known that nothing is continued, else in a new
    one; with `session` only its own task is continued.  Raises UsageError or NotSerialisable before anything is written when
    it cannot run, LeaseHeld when the unfinished task runs elsewhere.
    """
    options, origin, named = options or RunOptions(), origin or Origin(), kwargs or {}
    if not isinstance(workflow, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
        raise UsageError(f"{getattr(workflow, '__name__', workflow)!r} is not a workflow", hint="decorate it with @workflow")
    workflow.bind(args, named)
    arguments = identity.arguments(workflow.name, args, named)
    key = run_key(origin, workflow, arguments)
    if not new:
        stale: set[str] = set()
        while (found := _same_call(store, key, origin.notebook, session, once=once)) and found.summary is not None:
            known = store.session(found.session_id)
            if found.summary.state == TaskState.COMPLETED:
                return Launched(known, None, result_of(known), f"completed before: task {found.summary.task_id}; nothing ran")
            try:
                handle = resume_task(known, workflow, options=options, origin=origin, resume=resume)
            except (DamageError, NewerFormat) as error:
                told = f"task {found.summary.task_id} of this call is unfinished, and its log cannot be read: {error.message}"
                raise type(error)(told, hint=f"{error.hint}; --new starts another task") from error
            except ControlRefused:  # it has ended, and a crash came before its summary said so
                if found.session_id in stale:
                    raise
                stale.add(found.session_id)
                live.write_summary(known.layout, summarise(known.id, known.state()), store.disk)
                continue
            done = f"{found.summary.done} activities done" if found.summary.done != 1 else "1 activity done"
            return Launched(
                known, handle, None, f"continues task {found.summary.task_id} ({found.state}, {done}); --new starts another"
            )
    if session is None and into is not None:
        session = into()
    if session is None:
        session = store.create(title=options.title or workflow.name, notebook=origin.notebook)
    with _preparing(session, origin.holder or this_process(by=options.actor)) as appender:
        queue(appender, session, workflow, arguments, options, run_key=key, cell=origin.cell)
    return Launched(session, TaskHandle(session, appender, workflow, options, None), None, "")


def run_workflow(
    store: Store,
    workflow: Workflow,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    options: RunOptions | None = None,
    session: Session | None = None,
) -> TaskHandle:
    """Start a new task on a thread of its own, in `session` or a new one.  Raises as `launch` does."""
    handle = launch(store, workflow, args, kwargs, options=options, session=session, new=True).handle
    assert handle is not None
    return handle


def resume_task(
    session: Session,
    workflow: Workflow,
    *,
    options: RunOptions | None = None,
    origin: Origin | None = None,
    resume: Resume | None = None,
    take_over: bool = False,
) -> TaskHandle:
    """Continue the unfinished task of `session`.

    Raises LeaseHeld when somebody runs it (with `take_over` a holder that is stopped is fenced), ControlRefused when its
    task has ended, UsageError when `workflow` is not the one it was started with or a name of `redo` fits nothing."""
    options = options or RunOptions()
    holder = (origin.holder if origin else None) or this_process(by=options.actor)
    refuse_known_end(session)
    with _preparing(session, holder, force=take_over) as appender:
        system = appender.state.system_state
        _refuse_ended(session, system.task_id, system.status or "", system.ended_at or "")
        _refuse_other(session, system.target, workflow)
        to_redo(appender.state, resume.redo if resume else ())
        then = "undo that change to go on, or start another task with: ipyagent run ... --new"
        call = _recorded_call(session, appender.state, workflow, then=then)
    options = msgspec.structs.replace(
        options,
        durability=system.durability,
        pickle=options.pickle or system.pickle,
    )
    return TaskHandle(session, appender, workflow, options, resume or Resume(), call)


@contextlib.contextmanager
def _preparing(session: Session, holder: Holder, *, force: bool = False) -> Generator[Appender, None, None]:
    """The appender of a task that is about to begin, to be given to its handle; closed when what is done inside fails."""
    appender = session.append(holder, force=force)
    try:
        yield appender
    except BaseException:
        appender.close()
        raise


def _recorded_call(session: Session, state: State, workflow: Workflow, *, then: str) -> Call:
    """The arguments that the task was started with.  Raises UsageError when the workflow takes others now, DamageError and
    NotSerialisable when they cannot be read."""
    args, kwargs = recorded_arguments(session, state)
    try:
        workflow.bind(args, kwargs)
    except UsageError as error:
        raise UsageError(f"{error.message}: so the task was started", hint=f"{error.hint}; {then}") from error
    return args, kwargs


def refuse_known_end(session: Session) -> None:
    """Raise ControlRefused when the session's summary says that its task has ended; it may still be held while its tail is
    sealed.

    That file alone is asked: of a lost task `summary` folds the log, as the appender does.
    """
    known = live.read_summary(session.layout)
    if known is not None and known.state in ENDED:
        _refuse_ended(session, known.task_id, known.state, known.updated_at)


def _refuse_ended(session: Session, task_id: str | None, status: str, since: str) -> None:
    if task_id is None or not status:
        raise ControlRefused(f"session {session.id} has no task to resume", hint="start one in it with --session")
    if status in ENDED:
        hint = f"run it again as a new task: ipyagent rerun {session.id}"
        if status == TaskState.FAILED:
            hint = f"try another way from a checkpoint: ipyagent fork {session.id} --at SEQ"
        raise ControlRefused(f"task {task_id} is {status} since {since}; ended tasks never change", hint=hint)


def _refuse_other(session: Session, target: str, workflow: Workflow) -> None:
    if target.partition(":")[2] != workflow.target.partition(":")[2]:
        raise UsageError(f"session {session.id} runs {target}, not {workflow.target}", hint="name the right workflow")


def rerun(
    session: Session, store: Store, workflow: Workflow, *, options: RunOptions | None = None, origin: Origin | None = None
) -> TaskHandle:
    """Do a task again for real, with its recorded arguments, as a new task in a new session.  Its results may differ
    (R123, R124)."""
    options, origin = options or RunOptions(), origin or Origin()
    state = session.state()
    system = state.system_state
    if system.task_id is None:
        raise ControlRefused(f"session {session.id} has no task to run again")
    _refuse_other(session, system.target, workflow)
    body = msgspec.json.decode(session.event(system.queued_seq).payload, type=p.TaskQueued)
    options = msgspec.structs.replace(options, pickle=options.pickle or body.pickle)
    arguments = session.blobs.read(body.args_blob) if body.args_blob else bytes(memoryview(body.args))
    _recorded_call(session, state, workflow, then="undo that change to run it again")
    again = store.create(title=f"{ev.title(state.title or system.title, len(' (rerun)'))} (rerun)", notebook=origin.notebook)
    with _preparing(again, origin.holder or this_process(by=options.actor)) as appender:
        queue(appender, again, workflow, arguments, options, run_key="", cell=origin.cell, rerun_of=system.task_id)
    return TaskHandle(again, appender, workflow, options, None)


def result_of(session: Session) -> Any:
    """The value that the session's last task returned.  Raises ControlRefused when it is not completed, ResultLost."""
    system = session.state().system_state
    if system.status is not TaskState.COMPLETED or system.result_seq is None:
        raise ControlRefused(f"task {system.task_id} is {system.status}, it has no result")
    body = msgspec.json.decode(session.event(system.result_seq).payload, type=p.TaskCompleted)
    if body.result_lost is not None:
        raise ResultLost(system.target, "ResultLost", body.result_lost)
    packed = session.blobs.read(body.result_blob) if body.result_blob else body.result
    return codec.loads(packed, trust_pickle=system.pickle and session.native)


def _same_call(store: Store, key: str, notebook: str | None, only: Session | None, *, once: bool) -> Listed | None:
    """The newest unfinished task of that key, or, with `once`, a completed one; that of one session if only that is asked.

    Raises DamageError when there is none, and a session of the notebook cannot even be read so far as to say whose call it
    holds: begun anew, an unfinished task would do again what it has done.
    """
    ended = {s.value for s in ENDED}
    unknown: Listed | None = None
    for found in store.sessions() if only is None else [store.listed(only)]:
        summary = found.summary
        if summary is not None and not summary.state:  # a crash may have come between a task's first event and its summary
            with contextlib.suppress(IpyagentError, OSError):
                found.summary = summary = summarise(found.session_id, store.session(found.session_id).state())
        told = summary is not None and bool(summary.state)
        if found.problem and not told and unknown is None and _is_of(store.session(found.session_id), notebook):
            unknown = found
        if summary is None or summary.run_key != key:
            continue
        wanted = summary.state not in ended or (once and summary.state == TaskState.COMPLETED)
        if wanted and _may_be_ours(store.session(found.session_id)):
            return found
    if unknown is not None:
        raise DamageError(
            f"session {unknown.session_id} may hold this call unfinished, and cannot be read: {unknown.problem}",
            hint=f"ipyagent verify {unknown.session_id}; delete it when it is not needed, or --new starts another task",
        )
    return None


def _is_of(session: Session, notebook: str | None) -> bool:
    """Whether a session that cannot be read was made here, in that notebook."""
    try:
        return session.native and session.header.notebook == notebook
    except (IpyagentError, OSError):
        return False


def _may_be_ours(session: Session) -> bool:
    """Whether a session was made here, or cannot be read so far as to say: what was imported is not ours to go on with, nor to
    believe."""
    try:
        return session.native
    except (IpyagentError, OSError):
        return True
