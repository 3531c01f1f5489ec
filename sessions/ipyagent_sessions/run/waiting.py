"""Durable waits: for a time, and for a person."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads
from ipyagent_sessions.errors import IdentityError
from ipyagent_sessions.run import settle
from ipyagent_sessions.run.task import TaskRun


class Answer(Struct, frozen=True):
    """What a person answered; true when approved.  `arguments` are those of a tool call, when the person changed them."""

    approved: bool
    choice: str | None = None
    reason: str = ""
    by: str = ""
    arguments: dict[str, Any] | None = None

    def __bool__(self) -> bool:
        return self.approved


async def sleep(run: TaskRun, made: str, stage: str, length: float) -> None:
    """Wait `length` seconds by the wall clock; what a restart finds already waited counts."""
    if made in run.state.business_state.results:
        return
    active = run.state.execution_state.active_activities.get(made)
    run.check()
    run.works_again()
    if active is None:
        until = run.clock.now() + length
        run.emit(
            "ActivityStarted",
            payloads.ActivityStarted("sleep", "sleep", stage=stage, until=ev.Stamper()(until)),
            activity_id=made,
        )
        run.acknowledge()
    else:
        until = ev.seconds_of(active.until or active.since)
    run.executing[made] = "sleep"
    try:
        while (left := until - run.clock.now()) > 0:
            await run.rest(left)
    finally:
        del run.executing[made]
        if run.answers:
            run.waits()
    run.emit("ActivityCompleted", payloads.ActivityCompleted("sleep", "sleep"), activity_id=made)
    run.acknowledge()


async def approve(run: TaskRun, made: str, question: str, details: Raw, length: float | None, **more: Any) -> Answer:
    """Ask a person, or find the question asked or answered.

    `length` is seconds until it is denied, `more` are further fields of `ApprovalRequested`."""
    approval_id = run.approvals.get(made)
    if approval_id is None:
        run.check()
        expires_at = None if length is None else ev.Stamper()(run.clock.now() + length)
        ignored = "waits for an answer" if expires_at is None else f"denied at {expires_at}"
        approval_id = run.approvals[made] = settle.request(
            run, question, details, activity_id=made, expires_at=expires_at, if_ignored=ignored, **more
        )
    asked = run.state.execution_state.approvals[approval_id]
    if asked.digest != settle.digest_of(question, details, []):
        raise IdentityError(
            f"{made} was asked with another question or other details: {asked.question!r}",
            hint="undo the change, or give the new question another key",
        )
    await settle.wait_for_answer(run, approval_id)
    asked = run.state.execution_state.approvals[approval_id]
    return Answer(asked.answer == "approved", asked.choice, asked.reason, asked.by, msgspec.json.decode(asked.arguments))
