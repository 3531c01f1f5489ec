"""What a task leaves behind when it ends: files, what nothing has undone, what nothing can undo.  Pure over the state."""

from __future__ import annotations

from collections.abc import Sequence

from ipyagent_sessions import payloads as p
from ipyagent_sessions.state import State


def artefacts(state: State) -> dict[str, list[str]]:
    """What became of the files the task wrote: all are kept unless something rolls them back."""
    files = sorted(state.business_state.files)
    return {"kept": files} if files else {}


def of_cancelled(
    state: State,
    reason: str,
    *,
    compensated: Sequence[str] = (),
    needs_person: Sequence[str] = (),
    still_running: Sequence[str] = (),
) -> p.TaskCancelled:
    """What is logged of a task that is cancelled in `state`, by those who may have undone a part of it before."""
    results = state.business_state.results
    standing = {i: r for i, r in results.items() if r.ok and not r.compensated}
    return p.TaskCancelled(
        reason,
        artefacts(state),
        list(compensated),
        [i for i, r in standing.items() if r.compensable and i not in needs_person],
        [i for i, r in standing.items() if r.effect == "irreversible"],
        list(still_running),
        list(needs_person),
    )
