"""Calls that started and left no result: their outcome is unknown (R151).

Effect-free and idempotent ones are run again.  For an irreversible one its `verify` function decides; without one a
person does, asked once for each function, for all of its open calls together."""

from __future__ import annotations

import inspect
from typing import Any, Final, Literal

import msgspec

from ipyagent_sessions import codec
from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.lifecycle import ENDED
from ipyagent_sessions.run import frames
from ipyagent_sessions.run.definitions import EFFECTS, Done
from ipyagent_sessions.run.keys import belonging
from ipyagent_sessions.run.plan import Plan
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.state import Active

_LONGEST_TOLD: Final = 2000
"""Bytes of arguments that are shown with the question whether a call happened."""
_PREVIEW: Final = 1000
"""Bytes of the details of a request that stand in its event when the whole is a blob."""


def at_rest(run: TaskRun, ids: set[str]) -> set[str]:
    """Those of the open calls `ids` of which the log says that nothing was under way.

    Their last attempt had failed and the next not begun, or their function was not called at all.
    """
    active = run.state.execution_state.active_activities
    resting: set[str] = set()
    for event in run.session.events(min((active[i].seq for i in ids), default=run.state.seq)):
        made = event.activity_id
        if made is None or made not in ids or event.seq <= active[made].seq:
            continue
        if event.event_type == "ActivityRetried":
            resting.add(made)
        elif event.event_type == "ActivityFailed":
            body = msgspec.json.decode(event.payload, type=p.ActivityFailed)
            (resting.add if body.error_type == p.NOT_RUN else resting.discard)(made)
    return resting


def as_begun(run: TaskRun, plan: Plan, active: Active) -> Plan:
    """`plan`, held to the stricter of the effect it was begun with and the one declared now; a difference is an alarm."""
    if active.effect == plan.effect:
        return plan
    stricter = max(active.effect, plan.effect, key=EFFECTS.index)
    text = f"{plan.id} was begun with effect {active.effect} and is declared {plan.effect} now; it is taken as {stricter}"
    run.emit("AlarmRaised", p.AlarmRaised("effect_changed", text))
    return msgspec.structs.replace(plan, effect=stricter)


async def outcome(run: TaskRun, plan: Plan) -> Literal["again", "recorded"]:
    """Settle the open call `plan`: "again" when it is to be run, "recorded" when its result now stands in the state.

    Raises UsageError when a verify function answers neither True, False nor Done.
    """
    if plan.effect != "irreversible":
        return "again"
    if plan.verify is not None:
        answer = await _verified(run, plan)
        if plan.id in run.state.business_state.results:  # by verify, or by a person who was quicker
            return "recorded"
        if answer is not None:
            return answer
    await _asked(run, plan)
    if plan.id in run.state.business_state.results:
        return "recorded"
    if plan.id in run.state.execution_state.active_activities:  # neither "happened" nor "run_again" was said
        run.stop("suspend", reason="approval", detail=f"nobody has said whether {plan.id} happened")
        run.check()
    return "again"


async def _verified(run: TaskRun, plan: Plan) -> Literal["again", "recorded"] | None:
    """What the verify function says; None, with an alarm, when it could not say: then a person is asked."""
    verify = plan.verify
    assert verify is not None
    try:
        with belonging(run.task_id, plan.id):
            if inspect.iscoroutinefunction(verify):
                answer = await verify(*plan.args, **plan.kwargs)
            else:
                answer = (await run.threads.submit(lambda: verify(*plan.args, **plan.kwargs))).value
                answer = await answer if inspect.isawaitable(answer) else answer
    except Exception as error:  # noqa: BLE001  # whatever it raises, the question stays open
        text = f"verify of {plan.id} failed: {type(error).__name__}: {frames.text_of(error)}; a person is asked"
        run.emit("AlarmRaised", p.AlarmRaised("verify", text))
        return None
    if answer is False or plan.id in run.state.business_state.results:
        return "again"
    if answer is not True and not isinstance(answer, Done):
        raise UsageError(f"verify of {plan.activity.name} answered {answer!r}", hint="True, False, or Done(result)")
    blobs: dict[str, bytes] = {}
    result, blob = run.appender.put(codec.dumps(answer.result if isinstance(answer, Done) else None), blobs)
    run.emit(
        "ActivityCompleted",
        p.ActivityCompleted(
            plan.activity.name,
            plan.kind,
            plan.digest,
            result,
            blob,
            None if isinstance(answer, Done) else "verified, no result kept",
            verified="verify",
        ),
        activity_id=plan.id,
        blobs=blobs or None,
    )
    run.acknowledge(effect=True)
    return "recorded"


async def _asked(run: TaskRun, plan: Plan) -> None:
    """Wait until a person has said of all open calls of this function whether they happened."""
    execution = run.state.execution_state
    name = plan.activity.name
    for approval_id, asked in execution.approvals.items():
        covers = asked.kind == "outcome" and plan.id in asked.about and asked.answer is None
        if covers and execution.active_activities[plan.id].seq < asked.seq:
            return await _said(run, plan, approval_id)
    opened = execution.active_activities.items()
    about = [
        i for i, a in opened if a.name == name and (a.effect == "irreversible" or i == plan.id) and i not in run.executing
    ]
    resting = at_rest(run, {*about} - {plan.id})  # these certainly did not happen
    about = [i for i in about if i not in resting]
    question = f"{name}: {len(about)} call{'s' if len(about) != 1 else ''} started and left no result. Did it happen?"
    shown = [_told(run, i, execution.active_activities[i]) for i in about]
    details = msgspec.Raw(msgspec.json.encode(shown))
    approval_id = request(
        run,
        question,
        details,
        kind="outcome",
        choices=[p.HAPPENED, p.RUN_AGAIN],
        about=about,
        effect="irreversible",
        if_ignored="nothing runs until somebody says",
    )
    await _said(run, plan, approval_id)


async def _said(run: TaskRun, plan: Plan, approval_id: str) -> None:
    """Wait until the request is answered, at least for this call of it."""
    asked = run.state.execution_state.approvals[approval_id]
    while asked.answer is None and plan.id in asked.about:
        await wait_for_answer(run, approval_id)


def _told(run: TaskRun, activity_id: str, active: Active) -> dict[str, Any]:
    """What a person needs to know of an open call to say whether it happened; long arguments are left out.

    `arguments` is a list, or an object when all have names; beside a list `keywords` are those that have one.
    """
    told: dict[str, Any] = {"activity": activity_id, "since": active.since}
    started = msgspec.json.decode(run.session.event(active.seq).payload, type=p.ActivityStarted)
    given = msgspec.json.decode(started.args)
    if given and any(given) and len(memoryview(started.args)) <= _LONGEST_TOLD:
        positional, named = given if len(given) > 1 else (given[0], None)
        told["arguments"] = positional or named
        if positional and named:
            told["keywords"] = named
    return told


def request(run: TaskRun, question: str, details: msgspec.Raw, *, activity_id: str | None = None, **more: Any) -> str:
    """Log an approval request, durably; returns its id, unique in the session."""
    question = ev.clean(question)[0]
    approval_id, blobs = f"a{run.state.asked + 1}", dict[str, bytes]()
    digest = digest_of(question, details, more.get("choices", []))
    inline, blob = run.appender.put(bytes(memoryview(details)), blobs)
    body = p.ApprovalRequested(approval_id, question, inline, digest, details_blob=blob, **more)
    if blob is not None:
        body.preview = codec.readable(blobs[blob]).encode()[:_PREVIEW].decode("utf-8", "ignore")
    run.emit("ApprovalRequested", body, activity_id=activity_id, blobs=blobs or None)
    run.before_effect()
    run.summarise()
    return approval_id


def digest_of(question: str, details: msgspec.Raw, choices: list[str]) -> str:
    """What an answer is bound to; the order of keys in `details` does not count."""
    return codec.digest(codec.canonical([question, msgspec.json.decode(details), choices]))


async def wait_for_answer(run: TaskRun, approval_id: str) -> None:
    """Return once the approval is answered, or a part of it.

    Raises TaskStop when nobody can answer here, or the task is asked to stop.
    """
    asked = run.state.execution_state.approvals[approval_id]
    if asked.answer is not None:
        return
    future = run.answers.setdefault(approval_id, run.loop.create_future())
    run.waits()
    try:
        await run.wait(future)
    finally:
        if run.state.system_state.status not in ENDED and run.answers.get(approval_id) is future:
            del run.answers[approval_id]
        if run.answers:
            run.waits()
