"""The end of a log against what else tells how far it went."""

from __future__ import annotations

from ipyagent_sessions.log import witnesses
from ipyagent_sessions.log.layout import Layout
from ipyagent_sessions.log.reader import seqs
from ipyagent_sessions.verify.finding import COPY, Finding


def check(layout: Layout, known: witnesses.Known, end: int, at: str) -> list[Finding]:
    """The damage that the log ends at event `end`, of time `at`, though more was on disk; nothing when all agree."""
    later = witnesses.later(layout, known, end, at)
    if not later:
        return []
    journals = layout.journals()
    file = journals[-1].path.name if journals else "log"
    what = f"it ends there, and {', '.join(f'{name} tells of event {seq}' for name, seq in later.items())}"
    means = f"{seqs(end + 1, max(later.values()))} lost; a fork goes on from event {end}"
    return [Finding(layout.root.name, file, f"after event {end}", what, means, COPY)]
