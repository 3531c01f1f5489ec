"""Activities and stages: begun, failed, tried again, completed, undone; and what a workflow emits."""

from __future__ import annotations

from sys import intern
from typing import Final

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import NULL, Event
from ipyagent_sessions.folding import sections
from ipyagent_sessions.folding.reading import parsed
from ipyagent_sessions.state import Active, Recorded, Stage, State

INLINE_RESULT: Final = 2048
"""Results up to this many bytes of JSON live in the state; larger ones by the seq of their event."""


def activity_started(state: State, event: Event) -> None:
    body: p.ActivityStarted = parsed(event)
    run = state.execution_state
    activity_id = event.activity_id or ""
    if body.kind == "stage":
        run.stages[activity_id] = Stage(body.name, event.seq)
        run.current_stage = activity_id
        if body.checked:
            sections.opened(state, event)
        return
    run.active_activities[activity_id] = Active(
        event.seq,
        body.name,
        event.timestamp,
        body.kind,
        body.key,
        body.stage,
        body.digest,
        body.effect,
        event.attempt or 1,
        body.until,
        body.compensable,
        body.source,
        verifiable=body.verifiable,
    )
    run.last_activity = activity_id


def activity_progressed(state: State, event: Event) -> None:
    body: p.ActivityProgressed = parsed(event)
    run = state.execution_state
    active = run.active_activities.get(event.activity_id or "")
    if active is not None:
        active.done, active.total = body.done, body.total
    elif event.activity_id is None:
        run.total, run.text = body.total, body.text


UNCOUNTED: Final = frozenset({"value", "sleep", "emit", "note"})
"""Recorded results that are no work of their own."""


def activity_completed(state: State, event: Event) -> None:
    body: p.ActivityCompleted = parsed(event)
    run, business = state.execution_state, state.business_state
    activity_id = event.activity_id or ""
    if body.kind == "stage":
        stage = run.stages.get(activity_id)
        if stage is not None:
            stage.done = True
        business.completed_subtasks.append(f"{activity_id} {body.name}")
        run.current_stage = activity_id.rpartition(".")[0]
        sections.closed(state, activity_id)
        return
    active = run.active_activities.pop(activity_id, None)
    inline = body.result_blob is None and len(memoryview(body.result)) <= INLINE_RESULT
    effect, compensable, source = ("none", False, "") if active is None else _declared(active)
    business.results[activity_id] = Recorded(
        event.seq,
        body.digest,
        intern(body.name),
        intern(body.kind),
        result=body.result.copy() if inline and body.result != NULL else NULL,  # a copy keeps no more than itself in memory
        by_reference=not inline,
        result_lost=body.result_lost is not None,
        effect=effect,
        compensable=compensable,
        source=source,
    )
    if body.kind not in UNCOUNTED:
        run.done += 1


def activity_failed(state: State, event: Event) -> None:
    body: p.ActivityFailed = parsed(event)
    run = state.execution_state
    activity_id = event.activity_id or ""
    if body.aborted or body.still_running:
        active = run.active_activities.get(activity_id)
        if active is not None:
            active.timed_out = body.timed_out
            if body.aborted and active.effect == "none":
                del run.active_activities[activity_id]
        if body.aborted:
            return
    active = run.active_activities.pop(activity_id, None)
    effect, _, source = ("none", False, "") if active is None else _declared(active)
    state.business_state.results[activity_id] = Recorded(
        event.seq, body.digest, intern(body.name), intern(body.kind), ok=False, effect=effect, source=source
    )
    run.failed += 1


def _declared(active: Active) -> tuple[str, bool, str]:
    """What its start said of an activity: effect, whether it can be undone, source."""
    return intern(active.effect), active.compensable, intern(active.source)


def activity_retried(state: State, event: Event) -> None:
    run = state.execution_state
    active = run.active_activities.get(event.activity_id or "")
    if active is not None:
        active.attempt = (event.attempt or 1) + 1
    run.retried += 1
    counts = state.system_state.retry_counts
    counts[event.activity_id or ""] = event.attempt or 1


def activity_compensated(state: State, event: Event) -> None:
    body: p.ActivityCompensated = parsed(event)
    recorded = state.business_state.results.get(event.activity_id or "")
    if recorded is not None and body.ok:
        recorded.compensated = True


def emitted(state: State, event: Event) -> None:
    """An event that a workflow emitted: recorded, so that a resumed body does not emit it again."""
    state.business_state.results[event.activity_id or ""] = Recorded(event.seq, name=event.event_type, kind="emit")
