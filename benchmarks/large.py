"""How much memory it takes to resume a session of 1 GB, and to look at it.

100,000 activities, each tenth result a blob of 64 KB, the others 6 KB of text in the log; the holder was killed.  Each is
measured in a fresh process, all of whose memory counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measure import Row, child, row, size_of

ACTIVITIES = 100_000


def measure(work: Path) -> Iterator[Row]:
    left = work / "left"
    child(work, "large", left, ACTIVITIES, killed=True)
    size = size_of(left) / 1e9
    for what, name, bound in (
        ("log", "reading all events", None),
        ("state", "the state at its middle", None),
        ("resume", "resume to its end", 300.0),
        ("verify", "verify", None),
    ):
        found = child(work, "looks", left, what)
        note = f"{size:.2f} GB on disk, {found['s']:.1f} s"
        yield row(f"memory, {ACTIVITIES:,} large results: {name}", [found["mb"]], "MB", at_most=bound, note=note)
