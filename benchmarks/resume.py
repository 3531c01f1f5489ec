"""How long it takes from opening a session whose holder was killed to the next activity's function being entered."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path

from measure import SAMPLES, Row, child, row


def measure(work: Path) -> Iterator[Row]:
    for count, bound in ((1_000, 20.0), (100_000, 1_000.0)):
        left = work / f"left-{count}"
        child(work, "crash", left, count, killed=True)
        took: list[dict[str, float]] = []
        for i in range(SAMPLES + 1):
            copy = work / f"copy-{count}-{i}"
            shutil.copytree(left, copy)
            took.append(child(work, "resume", copy))
            shutil.rmtree(copy)
        cpu = statistics.median(t["cpu_ms"] for t in took[1:])
        yield row(
            f"resume after {count:,} recorded activities, holder killed",
            [t["ms"] for t in took[1:]],
            "ms",
            at_most=bound,
            note=f"CPU {cpu:.0f} ms",
        )
