"""What reaches a running task from outside: people's requests, and what wall time brings."""

from __future__ import annotations

from ipyagent_sessions.lifecycle import ENDED
from ipyagent_sessions.log import inbox
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.run import control
from ipyagent_sessions.run.beginning import overdue
from ipyagent_sessions.run.task import TaskRun


def attend(run: TaskRun, controls: list[Control]) -> None:
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
