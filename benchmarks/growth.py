"""Whether appending stays as fast and as small as it was at first: 600,000 events in one session."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from measure import SAMPLES, Row, child, row

EVENTS = 600_000


def measure(work: Path) -> Iterator[Row]:
    found = [child(work, "appends", work / f"store-{i}", EVENTS) for i in range(SAMPLES)]
    p99 = statistics.median(f["last_us"] for f in found)
    first = statistics.median(f["first_half_mib"] for f in found)
    yield row(
        f"append, {EVENTS:,} events: p99 of the last tenth / p99 of the first",
        [f["ratio"] for f in found],
        at_most=1.5,
        note=f"{p99:.0f} µs at the end",
    )
    yield row(
        f"memory gained in the second half of {EVENTS:,} events",
        [f["second_half_mib"] for f in found],
        "MiB",
        at_most=16,
        note=f"in the first, with what sealing works in, {first:.0f} MiB",
    )
