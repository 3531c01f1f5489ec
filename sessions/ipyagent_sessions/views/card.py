"""One task as what is shown of it: every field of the monitoring panel (R190-R201) and what may be done now (R202-R205).

A pure function of the folded state, `live.json` and the time.  The cell's text, its HTML, the server's JSON and the
sidebar all show this model, so they cannot disagree."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from ipyagent_sessions import codec
from ipyagent_sessions.events import seconds_of
from ipyagent_sessions.lifecycle import ENDED, LOST, TaskState
from ipyagent_sessions.log.appender import RISK
from ipyagent_sessions.log.live import Live
from ipyagent_sessions.payloads import HAPPENED, IMPORTED
from ipyagent_sessions.state import State
from ipyagent_sessions.views import formats

LEAST_FOR_ESTIMATE: Final = 3
_RISK: Final = {**RISK, IMPORTED: "a transcript tells of it, nothing of it ran here"}
LATEST: Final = 3
_RESULT: Final = " [--result JSON]"
"""What goes with the answer that a call happened: without it, who needs what the call returned gets ResultLost."""
"""How many alarms a card shows; of earlier ones it says where they are."""


class Ask(Struct):
    """Something that waits for a person.  `details` is JSON text, or, when the whole is the blob `details_blob`, the beginning
    of it; `digest` is what an answer confirms.

    Nobody having answered until `expires_at` counts as denied.  A tool call (`kind` tool) has its `tool`, `arguments` and
    `effect` in the details, and may be approved with other arguments.
    """

    approval_id: str
    question: str
    details: str
    digest: str
    kind: str
    choices: list[str]
    if_ignored: str
    since_s: float
    expires_at: str | None = None
    details_blob: str | None = None


class Card(Struct):
    """What is shown of a task.  Times in seconds, sizes in bytes, None where it is not known.

    `kind` is workflow or agent.  `requests` counts the task's model requests, `unpriced` those whose price nobody knows;
    tokens and cost are the task's as well.  `partial` is what has come of the answer.  `pausing` says that a pause waits for
    open activities.  `actions` maps pause, resume, cancel, log to the reason why it is not allowed now, empty when it is.
    """

    session_id: str
    task_id: str
    title: str
    target: str
    state: str
    headline: str
    reason: str
    detail: str
    elapsed_s: float
    done: int
    total: int | None
    failed: int
    retried: int
    stage: str
    stage_name: str
    now: list[str]
    text: str
    remaining_s: float | None
    remaining_basis: str
    checkpoint_age_s: float | None
    checkpoint_label: str
    checkpoint_seq: int | None
    checkpoint_next_s: float | None
    durability: str
    risk: str
    cpu_percent: float | None
    memory: int | None
    memory_total: int | None
    disk_used_percent: float | None
    tokens: int
    cost_usd: float
    asks: list[Ask]
    alarms: list[str]
    actions: dict[str, str]
    seq: int
    goal: str | None = None
    attempt: int = 0
    recoveries: int = 0
    recovery: str = ""
    kind: str = "workflow"
    model: str = ""
    requests: int = 0
    partial: str = ""
    unpriced: int = 0
    pausing: bool = False


def card(session_id: str, state: State, live: Live | None, effective: str, now: float) -> Card:
    """The card of the session's current task.  `effective` is the state as shown, `now` seconds since the epoch."""
    system, run = state.system_state, state.execution_state
    running = effective == TaskState.RUNNING
    if live is not None and live.task_id != system.task_id:
        live = None
    remaining, basis = _estimate(state, running, now)
    stage = run.stages.get(run.current_stage)
    checkpoint = state.checkpoint
    return Card(
        session_id,
        system.task_id or "",
        system.title or state.title,
        system.target.rpartition(":")[2],
        effective,
        _headline(state, effective),
        system.reason,
        system.detail,
        _elapsed(state, running, now),
        run.done,
        run.total,
        run.failed,
        run.retried,
        run.current_stage,
        stage.name if stage else "",
        _now(state, live, running),
        run.text,
        remaining,
        basis,
        max(0.0, now - seconds_of(checkpoint.at)) if checkpoint else None,
        checkpoint.label if checkpoint else "",
        checkpoint.seq if checkpoint else None,
        live.next_checkpoint if live and running else None,
        system.durability,
        _risk(system.durability, live if running else None),
        live.cpu if live and running else None,
        live.rss if live and running else None,
        live.memory_total if live else None,
        _disk(live),
        system.spent.input_tokens + system.spent.output_tokens,
        system.spent.cost_usd,
        _asks(state, now),
        [*state.alarms, *([live.degraded] if live and live.degraded else [])],
        actions(state, effective),
        state.seq,
        state.business_state.current_goal,
        system.attempt,
        system.recoveries,
        system.recovery,
        system.kind,
        system.model,
        system.spent.requests,
        live.partial if live and running else "",
        system.spent.unpriced,
        running and system.pausing,
    )


def actions(state: State, effective: str) -> dict[str, str]:
    """Why each action is not allowed now, empty when it is."""
    system = state.system_state
    ended = f"it is {effective}, and an ended task never changes" if system.status in ENDED else ""
    none = "" if system.status else "there is no task yet"
    running = effective == TaskState.RUNNING
    return {
        "pause": none or ended or ("" if running else f"it is {effective}, not running"),
        "resume": none or ended or ("it is running" if running else ""),
        "cancel": none or ended,
        "log": "",
    }


def _headline(state: State, effective: str) -> str:
    """One line for the state: what it is and why."""
    system, run = state.system_state, state.execution_state
    of = f" of {run.total}" if run.total is not None else ""
    if effective == LOST:
        return f"stopped at activity {run.done}{of}: the process that ran it is gone"
    if effective == TaskState.RUNNING and system.pausing:
        return f"running, pausing: waiting for {len(run.active_activities)} open activities"
    if effective == TaskState.SUSPENDED:
        return f"suspended: {system.detail or system.reason}"
    if effective == TaskState.INTERRUPTED:
        return "interrupted by a person"
    if effective == TaskState.FAILED:
        return f"failed: {system.error_type}: {system.error}"
    if effective == TaskState.CANCELLED:
        return f"cancelled{': ' + system.detail if system.detail else ''}"
    return effective


def _elapsed(state: State, running: bool, now: float) -> float:
    """How long the task ran, up to now, or to its newest event when it is lost."""
    system = state.system_state
    if system.status is not TaskState.RUNNING:
        return system.ran_s
    until = now if running else seconds_of(state.updated_at)
    return system.ran_s + max(0.0, until - seconds_of(system.changed_at))


def _estimate(state: State, running: bool, now: float) -> tuple[float | None, str]:
    """Seconds that are left and what the estimate rests on; (None, why) when it would be a guess."""
    run = state.execution_state
    if not running:
        return None, ""
    if run.total is None and state.system_state.kind == "agent":
        return None, "an agent decides as it goes"
    if run.total is None:
        return None, "nobody has said how many activities there are"
    if run.done < LEAST_FOR_ESTIMATE:
        return None, f"after {LEAST_FOR_ESTIMATE} activities"
    newest = max((active.since for active in run.active_activities.values()), default=state.updated_at)
    took = _elapsed(state, running, seconds_of(newest))
    left = max(0, run.total - run.done) * took / run.done - (now - seconds_of(newest))
    basis = f"{run.done} activities in {formats.duration(took)}"
    return (left, basis) if left > 0 else (None, f"longer than expected of {basis}")


def _now(state: State, live: Live | None, running: bool) -> list[str]:
    """What runs now, by name, with the attempt when it is not the first."""
    if not running:
        return []
    run = state.execution_state
    fresh = live is not None and live.last_seq >= state.seq
    names = live.now if live is not None and fresh and live.now else list(run.active_activities)
    shown = []
    for activity_id in names:
        active = run.active_activities.get(activity_id)
        tried = f" (attempt {active.attempt})" if active and active.attempt > 1 else ""
        far = f" {active.done} of {active.total}" if active and active.total else ""
        shown.append(f"{activity_id.partition('/')[2] or activity_id}{far}{tried}")
    return shown


def _disk(live: Live | None) -> float | None:
    if live is None or not live.disk_total or live.disk_free is None:
        return None
    return round(100 * (1 - live.disk_free / live.disk_total), 1)


def _asks(state: State, now: float) -> list[Ask]:
    if state.system_state.status in ENDED:
        return []
    return [
        Ask(
            key,
            a.question,
            codec.readable(a.details) if a.details_blob is None else a.preview,
            a.digest,
            a.kind,
            a.choices,
            a.if_ignored,
            max(0.0, now - seconds_of(a.asked_at)),
            a.expires_at,
            a.details_blob,
        )
        for key, a in state.execution_state.approvals.items()
        if a.answer is None
    ]


def answers_to(shown: Card, ask: Ask, prefix: str) -> list[str]:
    """The commands that answer a request.  Of an unknown outcome there is no yes or no: only what happened can be chosen."""
    request = f"{shown.session_id} --approval {ask.approval_id}"
    if ask.kind == "outcome":
        return [f"{prefix} approve {request} --choice {c}{_RESULT if c == HAPPENED else ''}" for c in ask.choices]
    choice = f" --choice {'|'.join(ask.choices)}" if ask.choices else ""
    return [f"{prefix} approve {request}{choice}", f"{prefix} deny {request}"]


def _risk(durability: str, live: Live | None) -> str:
    """What the mode risks; while the disk refuses, from which event on nothing is on it."""
    if live is not None and live.degraded:
        return f"NOT on disk since event {live.durable_seq + 1}: the disk refuses"
    return _RISK.get(durability, "")


def resources(shown: Card) -> list[str]:
    """What the task uses, as far as it is known: CPU, memory, disk, tokens and cost."""
    parts = []
    if shown.cpu_percent is not None:
        parts.append(f"CPU {shown.cpu_percent:.0f} %")
    if shown.memory is not None:
        parts.append(f"memory {formats.size(shown.memory)} of {formats.size(shown.memory_total)}")
    if shown.disk_used_percent is not None and shown.state == "running":
        parts.append(f"disk {shown.disk_used_percent:.0f} %")
    if shown.tokens or shown.cost_usd:
        parts.append(f"{formats.quantity(shown.tokens)} tokens, {cost(shown)}")
    return parts


def cost(shown: Card) -> str:
    """What model requests have cost; said to be incomplete when the price of one is not known."""
    return formats.cost(shown.cost_usd, shown.unpriced)


def resuming(shown: Card, prefix: str) -> str:
    """The command that continues a task; one that has used up its budget needs more of it."""
    more = " --budget steps=20" if shown.reason == "step_cap" else " --budget ..." if shown.reason == "budget" else ""
    return f"{prefix} resume {shown.session_id}{more}"


def steps(shown: Card) -> str:
    """How many activities are done, of an agent by what they were."""
    if shown.kind != "agent" or shown.total is not None:
        return f"{shown.done} activities done" if shown.done != 1 else "1 activity done"
    calls = max(0, shown.done - shown.requests)
    requests = f"{shown.requests} model request{'s' if shown.requests != 1 else ''}"
    return f"{requests}, {calls} tool call{'s' if calls != 1 else ''}"


def as_json(shown: Card) -> bytes:
    """The card as JSON, for the server."""
    return msgspec.json.encode(shown)
