"""What reaches a running task from outside: people's requests, and what wall time brings."""

from __future__ import annotations

from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.lifecycle import ENDED
from ipyagent_sessions.log import inbox
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.run import control
from ipyagent_sessions.run.beginning import overdue
from ipyagent_sessions.run.task import TaskRun


def attend(run: TaskRun, controls: list[Control]) -> list[str]:
    """Log and do what people asked for; returns the ids of the requests to hand in again, because something was in the way.

    A request that breaks something is set aside with an alarm, and those behind it are answered.
    """
    again = []
    for asked in controls:
        try:
            _attend_one(run, asked)
        except (IpyagentError, OSError) as error:
            if asked.id not in run.state.controls:
                again.append(asked.id)
            _alarm(run, control.broken(asked, error))
        except Exception as error:  # noqa: BLE001  # it would break again; the loop and the requests behind it must go on
            inbox.set_aside(run.session.layout, asked.id)
            _alarm(run, control.broken(asked, error))
    return again


def _attend_one(run: TaskRun, asked: Control) -> None:
    refusal = control.decide(run.appender, asked)
    if not refusal and asked.action == "resume":
        refusal = "it is held here already and goes on by itself once nothing is missing"
    logged = control.log(run.appender, asked, refusal)
    if logged is not None and not refusal and asked.action == "checkpoint":  # in one commit with its request
        run.checkpoint("manual", asked.args.get("label") or "", actor=asked.actor)
    upto = logged.seq if logged is not None else run.state.seq
    run.sync()
    run.appender.disk.seam("after control logged")
    cancels = asked.action == "cancel" and not refusal  # stays until it is done: a death before that must not lose it
    if run.appender.durable_seq >= upto and not cancels:
        inbox.remove(run.session.layout, asked.id)
    if cancels or (logged is not None and not refusal):
        _apply(run, asked)


def _alarm(run: TaskRun, alarm: p.AlarmRaised) -> None:
    """Say it once: what is tried again ten times a second would fill the log."""
    if f"{alarm.kind}: {alarm.text}" not in run.state.alarms:
        run.emit("AlarmRaised", alarm)


def forget_cancellations(run: TaskRun) -> None:
    """Take the cancellations of an ended task out of the inbox; they were logged when they came."""
    if run.state.system_state.status in ENDED and run.appender.durable_seq >= run.state.seq:
        for asked in inbox.waiting(run.session.layout):
            if asked.action == "cancel" and asked.id in run.state.controls:
                inbox.remove(run.session.layout, asked.id)


def _apply(run: TaskRun, asked: Control) -> None:
    if asked.action == "pause":
        run.stop("abort" if run.stopping is not None else "pause", actor=asked.actor)
    elif asked.action == "cancel":
        run.stop("cancel", actor=asked.actor, reason=asked.args.get("reason") or "")
    elif asked.action == "answer":
        answered(run, str(asked.args["approval_id"]), asked.actor)
    elif asked.action == "rename":
        run.summarise()


def answered(run: TaskRun, approval_id: str, actor: str) -> None:
    """Let the body go on that waited for this answer."""
    run.works_again(actor)
    future = run.answers.get(approval_id)
    if future is not None and not future.done():
        future.set_result(None)
    run.summarise()


def tick(run: TaskRun) -> None:
    """What wall time brings: a timed checkpoint, an expired approval, the task's deadline."""
    run.notice()
    if run.state.system_state.status in ENDED or run.stopping is not None:
        return
    if run.triggers.due():
        run.checkpoint("time")
    for approval_id in control.expire(run.appender):
        answered(run, approval_id, "rule:expiry")
    over = overdue(run)
    if over:
        run.stop("deadline", detail=over)
