"""What the model is told when a turn goes on after a stop: what was done, what nobody knows, what is gone (R146, R151,
R251)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ipyagent_sessions import payloads as p
from ipyagent_sessions.state import State

BEGINS: Final = "[This turn was stopped "
"""How a notice begins: it tells of this execution, and is no part of what was asked."""


def of_resume(state: State, resumed: p.TaskResumed, changed: Sequence[str], said: str) -> str:
    """The notice for a turn that goes on in the present state, as its newest resume found it.

    `changed` are the files that are not as the model saw them, `said` is what a person adds.
    """
    lines = [f"{BEGINS}({_CAUSES.get(resumed.cause, resumed.cause)}) and goes on now.]"]
    results = {k: r for k, r in state.business_state.results.items() if r.kind == "tool"}
    done = [k for k, r in results.items() if r.ok]
    opened = [k for k, a in state.execution_state.active_activities.items() if a.kind == "tool"]
    if done:
        lines.append(f"Done before the stop, and not done again: {_listed(done)}.")
    if opened:
        lines.append(
            f"Under way at the stop; each is run again or settled by a person before you see its result: {_listed(opened)}."
        )
    if resumed.not_restored:
        lines.append(f"Not restored: {', '.join(resumed.not_restored)}. Do not rely on them; make them anew if you need them.")
    differences = [*resumed.differences, *changed]
    if differences:
        listed = "; ".join(differences[:20])
        lines.append(f"Changed since: {listed}. Look again before you rely on what you read earlier.")
    if said:
        lines.append(f"[The user adds:] {said}")
    return "\n".join(lines)


_CAUSES = {
    "worker_lost": "the process that ran it was lost",
    "paused": "a person paused it",
    "approval": "it waited for a person",
    "budget": "its budget was used up",
    "step_cap": "it had made as many steps as it may",
    "network": "the model could not be reached",
    "resources": "the model was not to be had",
    "definition": "something it needs was not defined",
    "forked": "it was forked from another session",
}


def _listed(ids: Sequence[str]) -> str:
    names = [i.partition("/")[2] or i for i in ids]
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(names[-12:]) + more
