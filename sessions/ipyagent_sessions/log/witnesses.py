"""How far a log went, by what else tells: the summary, `live.json` and the checkpoints.

Each of them is written once the event that it names is on disk, in every mode of durability.  So a crash may leave an empty
journal or cut what nobody was told of, and no log ends before what these three know.
"""

from __future__ import annotations

from msgspec import Struct

from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.log import checkpoints, live
from ipyagent_sessions.log.layout import Layout


class Known(Struct):
    """What each file tells; looked at before the log is read, which may grow."""

    summary: live.Summary | None
    live: live.Live | None
    checkpoints: list[int]


def look(layout: Layout) -> Known:
    return Known(live.read_summary(layout), live.read_live(layout), checkpoints.sequence(layout))


def later(layout: Layout, known: Known, end: int, at: str) -> dict[str, int]:
    """The event that each file knows though the log ends at event `end`, of time `at`; empty when all agree.

    A summary that is of a later event but of the same time as the last one only has a wrong number.
    """
    told = dict[str, int]()
    if known.summary is not None and known.summary.updated_at != at:
        told["summary.json"] = known.summary.seq
    if known.live is not None:
        told["live.json"] = known.live.durable_seq
    told |= {
        f"checkpoints/{checkpoints.path_of(layout, s).name}": s for s in known.checkpoints if s > end and _holds(layout, s)
    }
    return {file: seq for file, seq in told.items() if seq > end}


def _holds(layout: Layout, seq: int) -> bool:
    """Whether the checkpoint of that name holds the state at that event."""
    try:
        return checkpoints.load(layout, seq)[0].seq == seq
    except (IpyagentError, OSError):
        return False
