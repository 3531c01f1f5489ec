"""What people ask of a task: pause, cancel, answer, redo, checkpoint, rename; and who logs it (DESIGN section 9).

A request is a file in the inbox.  Whoever holds the lease logs it, with the outcome accepted or refused; if the lease is
free, the door that asks takes it and logs the request itself.  The first logged answer wins.  A request whose task or
state has moved on is refused, not applied to the next thing."""

from __future__ import annotations

import time
from typing import Any, Final

from msgspec.json import decode

from ipyagent_sessions import events as ev
from ipyagent_sessions import folding
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import (
    ControlPending,
    ControlRefused,
    DamageError,
    IllegalTransition,
    IpyagentError,
    LeaseHeld,
    NotFound,
)
from ipyagent_sessions.lifecycle import ENDED, TaskState, check
from ipyagent_sessions.log import inbox, live
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.run import answers, remains
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.state import State

ACTIONS: Final = ("pause", "resume", "cancel", "answer", "checkpoint", "rename")
"""What a door may ask.  The log also has `redo`, which only a resume writes."""
_TEXTS: Final = {
    "cancel": ("reason",),
    "answer": ("approval_id", "answer", "choice", "reason", "digest", "activity"),
    "checkpoint": ("label",),
    "rename": ("title",),
}
"""The arguments of an action that are texts; those it needs are in `_NEEDED`."""
_NEEDED: Final = {"answer": ("approval_id", "answer", "digest"), "rename": ("title",)}
CALLS: Final = "running calls"
NOT_RESTORED: Final = ("kernel variables", "open connections", CALLS, "child processes")
"""What goes with the process that a task ran in."""
_WAIT_S: Final = 5.0
_POLL_S: Final = 0.02


def judge(state: State, control: Control) -> str:
    """Why `control` is refused in this state; empty when it is accepted."""
    system = state.system_state
    status = system.status
    if control.action not in ACTIONS:
        return f"nothing is known of {control.action!r}; what can be asked is {', '.join(ACTIONS)}"
    wrong = _wrong_arguments(control)
    if wrong or control.action == "rename":
        return wrong
    if status is None:
        return "the session has no task yet"
    if control.task_id is not None and control.task_id != system.task_id:
        return f"task {control.task_id} is over; the session is at {system.task_id}"
    if control.expects and status.value not in control.expects:
        return f"the task is {status.value} now ({system.changed_at}), not {' or '.join(control.expects)} as when it was asked"
    if 0 < control.attempt < system.attempt:
        return f"the task was resumed since it was asked ({system.changed_at}); ask again if it still holds"
    if control.action == "answer":
        return answers.judge(state, control) or _not_allowed(TaskState.SUSPENDED, TaskState.RUNNING, control.actor)
    if status in ENDED:
        return f"the task is {status.value} since {system.changed_at}; an ended task never changes"
    if control.action == "pause" and status is not TaskState.RUNNING:
        return f"the task is {status.value}, not running"
    target = {"pause": TaskState.INTERRUPTED, "cancel": TaskState.CANCELLED}.get(control.action)
    return _not_allowed(status, target, control.actor) if target is not None else ""


def _wrong_arguments(control: Control) -> str:
    """What is wrong with the form of a request's arguments: anybody who can write to the inbox may have made it."""
    if not isinstance(control.args.get("arguments"), dict | None):
        return f"arguments must be an object, not {type(control.args['arguments']).__name__}"
    if not isinstance(control.args.get("always"), bool | None):
        return "always is true or false"
    for name in _TEXTS.get(control.action, ()):
        given, needed = control.args.get(name), name in _NEEDED.get(control.action, ())
        if not isinstance(given, str) and not (given is None and not needed):
            return f"{control.action} needs {name} as text" if needed else f"{name} must be text, not {type(given).__name__}"
    return ""


def decide(appender: Appender, control: Control) -> str:
    """Why `control` is refused; empty when it is to be done.  What was logged before a crash stands, whatever would be
    judged now."""
    if not _already_logged(appender, control):
        return judge(appender.state, control)
    system = appender.state.system_state
    found = _logged(appender, control)
    if found is None:
        return "it is in the log already, of this session's parent or not yet on disk"
    seq, body = found
    if body.outcome != "accepted":
        return body.reason or "it was refused"
    over = system.status in ENDED or seq < system.queued_seq
    return "it was accepted for a task that is over" if over and control.action not in ("rename", "checkpoint") else ""


def _not_allowed(source: TaskState, target: TaskState, actor: str) -> str:
    try:
        check(source, target, actor)
    except IllegalTransition as error:
        return error.message
    return ""


def log(appender: Appender, control: Control, refusal: str) -> ev.Event | None:
    """Log a request and its outcome, with the `ApprovalResolved` of an accepted answer; None when it was logged before.

    The caller makes it durable and then calls `inbox.remove`.
    """
    if _already_logged(appender, control):
        return answers.resolve(appender, control) if _half_answered(appender, control) else None
    appender.disk.seam("before control logged")
    event = appender.emit(
        "ControlRequested",
        p.ControlRequested(control.id, control.action, "refused" if refusal else "accepted", refusal, _told(control)),
        task_id=control.task_id,
        actor=control.actor,
    )
    if control.action == "answer" and not refusal:
        answers.resolve(appender, control, event.seq)
    return event


def _told(control: Control) -> dict[str, Any]:
    """The arguments as they are logged with the request.

    A title is cut; a result is logged with the call that it is the result of.
    """
    told = {name: value for name, value in control.args.items() if name != "result"}
    return (
        {**told, "title": ev.title(told["title"])} if control.action == "rename" and _wrong_arguments(control) == "" else told
    )


def _half_answered(appender: Appender, control: Control) -> bool:
    """Whether a crash came between an accepted request and the answer it gives, which are two events."""
    asked = appender.state.execution_state.approvals.get(str(control.args.get("approval_id", "")))
    if control.action != "answer" or asked is None or asked.answer is not None:
        return False
    one = control.args.get("activity")
    if one is not None and one not in folding.meant(appender.state, asked):  # answered for this call, and others still wait
        return False
    found = _logged(appender, control, after=asked.seq)
    return found is not None and found[1].outcome == "accepted"


def _logged(appender: Appender, control: Control, after: int = 0) -> tuple[int, p.ControlRequested] | None:
    """A request as it stands in this session's files, with its seq."""
    for event in Reader(appender.layout, appender.first).events(after=max(after, appender.first - 1)):
        if event.event_type == "ControlRequested":
            body = decode(event.payload, type=p.ControlRequested)
            if body.control_id == control.id:
                return event.seq, body
    return None


def _already_logged(appender: Appender, control: Control) -> bool:
    """Whether a crash came between logging a request and removing its file."""
    return control.id in appender.state.controls


def request(
    session: Session,
    action: str,
    *,
    actor: str,
    task_id: str | None = None,
    expects: list[str] | None = None,
    wait_s: float = _WAIT_S,
    **args: Any,
) -> p.ControlRequested:
    """Ask something of a session's task and return the logged outcome.

    If the lease is free it is taken and the request logged here.  Raises ControlRefused with the reason when it is
    refused, and ControlPending when the holder has not answered within `wait_s` seconds (the request stays, and is answered
    later unless the task was resumed meanwhile).  With any other error it was not asked."""
    session.refuse_foreign()
    place, after = session.place, session.last_seq()
    attempt = _attempt(session) if action in ("pause", "cancel") else 0
    asked_at = ev.Stamper()(place.clock.now())
    control = Control(place.ids(), action, actor, asked_at, task_id, expects or [], args, attempt)
    inbox.put(session.layout, control, place.disk)
    try:
        outcome = _settled(session, control, after, wait_s)
    except ControlPending:
        raise
    except BaseException:  # nobody is to find later what whoever asked was told has failed
        if _outcome(session, control.id, after) is None:
            inbox.remove(session.layout, control.id)
        raise
    if outcome.outcome == "refused":
        raise ControlRefused(f"{action} was refused: {outcome.reason}")
    return outcome


def _attempt(session: Session) -> int:
    """Which execution of its task a session is at, 0 when its log does not say."""
    try:
        return session.state().system_state.attempt
    except DamageError:
        return 0


def _settled(session: Session, control: Control, after: int, wait_s: float) -> p.ControlRequested:
    """What was logged of a request, by its holder or here.  Raises ControlPending, and what `attend` raises."""
    deadline = time.monotonic() + wait_s
    while (outcome := _outcome(session, control.id, after)) is None:
        if not session.held():
            try:
                attend(session, by=control.actor)
                continue
            except LeaseHeld:
                pass
        if time.monotonic() > deadline:
            raise ControlPending(
                f"{control.action} was left for the holder of {session.id}, which has not answered yet",
                hint="its process may be stopped; see: ipyagent status " + session.id,
            )
        time.sleep(_POLL_S)
    return outcome


def _outcome(session: Session, control_id: str, after: int) -> p.ControlRequested | None:
    for event in session.events(after):
        if event.event_type == "ControlRequested":
            body = decode(event.payload, type=p.ControlRequested)
            if body.control_id == control_id:
                return body
    return None


def attend(session: Session, *, by: str, how: str = "") -> State:
    """Do what waits for somebody with the lease: record a lost holder, answer the inbox, let expired approvals be denied.

    For doors and the sweeper; runs no workflow.  `how` is what is known of a lost holder's end.  Raises LeaseHeld.
    """
    appender = session.append(this_process(by=by))
    try:
        record_loss(appender, how)
        for control in inbox.waiting(session.layout):
            try:
                _attend_one(appender, control)
            except (IpyagentError, OSError):
                raise
            except Exception as error:  # noqa: BLE001  # one request that breaks something must not keep the others from being answered
                inbox.set_aside(session.layout, control.id)
                appender.emit("AlarmRaised", broken(control, error), task_id=appender.state.system_state.task_id)
                continue
            appender.barrier()
            appender.disk.seam("after control logged")
            inbox.remove(session.layout, control.id)
        expire(appender)
        appender.barrier()
        live.write_summary(session.layout, summarise(session.id, appender.state), appender.disk)
        return appender.state
    finally:
        appender.close(rest=appender.state.system_state.status in ENDED)


def _attend_one(appender: Appender, control: Control) -> None:
    refusal = decide(appender, control)
    if not refusal and control.action == "resume":
        refusal = "a task is resumed by a kernel or terminal that has its definitions"
    logged = log(appender, control, refusal)
    if not refusal and control.action == "cancel":
        cancel_at_rest(appender, control)
    elif logged is not None and not refusal and control.action == "checkpoint":
        appender.checkpoint("manual", control.args.get("label") or "", actor=control.actor)


def broken(control: Control, error: Exception) -> p.AlarmRaised:
    """The alarm for a request that could not be handled."""
    told = f"{type(error).__name__}: {error}"[:300]
    return p.AlarmRaised("control", f"request {control.id} ({control.action[:40]}) could not be handled: {told}")


def record_loss(appender: Appender, how: str = "") -> bool:
    """If the log says running and yet the lease was free, write down that its holder was lost, and `how`; whether it was."""
    state = appender.state
    system = state.system_state
    if system.status is not TaskState.RUNNING:
        return False
    run = state.execution_state
    of = f" of {run.total}" if run.total is not None else ""
    opened = sorted(run.active_activities)
    unknown = f"; outcome unknown: {', '.join(opened[:3])}{' ...' if len(opened) > 3 else ''}" if opened else ""
    appender.emit(
        "TaskSuspended",
        p.TaskSuspended(
            "worker_lost",
            f"{how + ': ' if how else ''}stopped at activity {run.done}{of}{unknown}; not restored: {', '.join(NOT_RESTORED)}",
            "resume",
            opened,
        ),
        task_id=system.task_id,
    )
    return True


def expire(appender: Appender) -> list[str]:
    """Deny the approvals whose time is over; returns their ids."""
    now = appender.clock.now()
    over = [
        key
        for key, a in appender.state.execution_state.approvals.items()
        if a.answer is None and a.expires_at is not None and ev.seconds_of(a.expires_at) <= now
    ]
    _deny(appender, over, "nobody answered in time", "expiry", "rule:expiry")
    return over


def reject(appender: Appender, actor: str, why: str) -> None:
    """Deny the approvals that still wait when their task ends."""
    waiting = [key for key, a in appender.state.execution_state.approvals.items() if a.answer is None]
    _deny(appender, waiting, why, actor, actor)


def _deny(appender: Appender, approval_ids: list[str], why: str, by: str, actor: str) -> None:
    for approval_id in approval_ids:
        asked = appender.state.execution_state.approvals[approval_id]
        appender.emit(
            "ApprovalResolved",
            p.ApprovalResolved(approval_id, "denied", None, why, asked.digest, by),
            task_id=appender.state.system_state.task_id,
            activity_id=asked.activity_id,
            actor=actor,
        )


def cancel_at_rest(appender: Appender, control: Control) -> None:
    """Cancel a task that nobody runs: its compensations cannot run here and are listed."""
    reject(appender, control.actor, "the task was cancelled")
    state = appender.state
    told = remains.of_cancelled(state, control.args.get("reason") or "")
    appender.emit("TaskCancelled", told, task_id=state.system_state.task_id, actor=control.actor)


def find_approval(state: State, wanted: str | None) -> str:
    """The id of the approval meant by `wanted`, or of the only one that waits.  Raises NotFound."""
    found = state.execution_state.approvals
    pending = [key for key, a in found.items() if a.answer is None]
    if wanted is not None:
        if wanted not in found:
            raise NotFound(f"there is no approval {wanted!r}", hint=f"waiting: {', '.join(pending) or 'none'}")
        return wanted
    if not pending:
        answered = [f"{key} was {a.choice or a.answer} by {a.by or 'nobody'} at {a.answered_at}" for key, a in found.items()]
        raise NotFound("nothing waits for an answer in this session" + (f": {answered[-1]}" if answered else ""))
    if len(pending) > 1:
        raise NotFound(f"{len(pending)} approvals wait: {', '.join(pending)}", hint="say which one with --approval")
    return pending[0]


__all__ = ["attend", "broken", "cancel_at_rest", "decide", "expire", "find_approval", "judge", "log", "record_loss", "request"]
