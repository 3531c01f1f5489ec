"""Checked sections: the business state at their start, and back to it when a check fails."""

from __future__ import annotations

import copy

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import Event
from ipyagent_sessions.folding.reading import parsed
from ipyagent_sessions.state import Section, State


def opened(state: State, event: Event) -> None:
    """Keep what the business state is here: what follows changes it in place."""
    business = state.business_state
    state.execution_state.sections[event.activity_id or ""] = Section(
        event.seq,
        business.current_goal,
        len(business.completed_subtasks),
        copy.deepcopy(business.values),
        business.large,
    )


def closed(state: State, activity_id: str) -> None:
    """Let go of what a section that passed its check does not go back to."""
    section = state.execution_state.sections.get(activity_id)
    if section is not None:
        section.values = {}
        section.failures = [""] * (len(section.failures) - 1) + section.failures[-1:]  # the last one was given to a part


def check_failed(state: State, event: Event) -> None:
    body: p.CheckFailed = parsed(event)
    run, business = state.execution_state, state.business_state
    place = (event.activity_id or "").rpartition(".")[0]
    section = run.sections.get(place)
    if section is None:
        return
    business.current_goal, business.large = section.current_goal, section.large
    business.values = copy.deepcopy(section.values)
    del business.completed_subtasks[section.completed :]
    run.sections = {i: inner for i, inner in run.sections.items() if not i.startswith(f"{place}.")}
    run.current_stage = place
    section.since = event.seq
    section.failures = [*section.failures, body.why]
    state.alarms = [*state.alarms[-9:], f"check: {body.sentence}"]
