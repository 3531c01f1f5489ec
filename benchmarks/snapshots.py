"""What a checkpoint by time costs of the five minutes between two of them, with 10,000 results in the state."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from measure import SAMPLES, Row, row
from workloads import run

from ipyagent_sessions.log import checkpoints
from ipyagent_sessions.log.lease import this_process

RESULTS, INTERVAL_S = 10_000, 300.0


def measure(work: Path) -> Iterator[Row]:
    session = run(work / "session", RESULTS, durability="exit").session
    appender = session.append(this_process(by="benchmark"))
    whole, held = [], []
    try:
        for _ in range(SAMPLES):
            begun = time.perf_counter()
            event = appender.checkpoint("time")
            held.append((time.perf_counter() - begun) * 1000)
            while event.seq not in checkpoints.sequence(session.layout):
                time.sleep(0.001)
            whole.append((time.perf_counter() - begun) / INTERVAL_S * 100)
    finally:
        appender.close()
    yield row(f"checkpoint by time at {RESULTS:,} results, share of a 5-minute interval", whole, "%", at_most=2)
    yield row("  of that, the task itself waits", held, "ms")
