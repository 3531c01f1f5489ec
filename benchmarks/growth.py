"""Whether appending stays as fast and as small as it was at first: 200,000 events in one session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measure import SAMPLES, Row, child, row

EVENTS = 200_000


def measure(work: Path) -> Iterator[Row]:
    found = [child(work, "appends", work / f"store-{i}", EVENTS) for i in range(SAMPLES)]
    yield row(f"append of {EVENTS:,} events: p99 of the last tenth / p99 of the first", [f["ratio"] for f in found], at_most=1.5,
              note=f"p99 {sorted(f['last_us'] for f in found)[SAMPLES // 2]:.0f} µs")
    yield row(f"memory gained between the first and the last tenth of {EVENTS:,} events", [f["rss_mib"] for f in found], "MiB", at_most=32)
