"""What the engine notes beside the work: checkpoints, recoveries, alarms, messages and what they used."""

from __future__ import annotations

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import Event
from ipyagent_sessions.folding.reading import parsed
from ipyagent_sessions.state import Checkpointed, State


def checkpoint_created(state: State, event: Event) -> None:
    body: p.CheckpointCreated = parsed(event)
    state.checkpoint = Checkpointed(event.seq, body.label, event.timestamp, body.trigger)
    state.checkpoints += 1
    section = state.execution_state.sections.get(state.execution_state.current_stage)
    if body.trigger == "checked" and section is not None:
        section.checkpoint = event.seq


def recovery_completed(state: State, event: Event) -> None:
    body: p.RecoveryCompleted = parsed(event)
    state.system_state.recoveries += 1
    state.system_state.recovery = body.sentence


def alarm_raised(state: State, event: Event) -> None:
    body: p.AlarmRaised = parsed(event)
    state.alarms = [*state.alarms[-9:], f"{body.kind}: {body.text}"]


def message_added(state: State, event: Event) -> None:
    body: p.MessageAdded = parsed(event)
    if body.role != "assistant" or body.partial or event.activity_id is None:  # not an answer, or one written down again
        return
    spent = state.system_state.spent
    state.requests += 1
    spent.requests += 1
    if event.cost_usd is None:
        state.unpriced += 1
        spent.unpriced += 1


def spend(state: State, event: Event) -> None:
    spent = state.system_state.spent
    tokens_in, tokens_out, cost = event.input_tokens or 0, event.output_tokens or 0, event.cost_usd or 0.0
    state.input_tokens += tokens_in
    state.output_tokens += tokens_out
    state.cost_usd += cost
    spent.input_tokens += tokens_in
    spent.output_tokens += tokens_out
    spent.cost_usd += cost
