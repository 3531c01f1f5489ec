"""Bytes a step once the session rests: segments, checkpoints, journal and all the other files of its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ipyagent_sessions import Store, run_workflow
from ipyagent_sessions.run.task import RunOptions
from measure import Row, row, size_of
from workloads import growing, run

COUNTS = (1_000, 10_000)


def measure(work: Path) -> Iterator[Row]:
    """The sizes hardly differ from run to run, so each is measured once."""
    for count in COUNTS:
        session = run(work / f"plain-{count}", count, durability="exit")[1]
        yield row(f"bytes a step at rest, {count:,} steps", [size_of(session.layout.root) / count], "bytes", at_most=400)
    for count in COUNTS:
        for stages in (1, 20):
            handle = run_workflow(Store(work / f"growing-{count}-{stages}"), growing, (count, stages),
                                  options=RunOptions(durability="exit"))
            handle.result()
            yield row(f"bytes a step at rest, {count:,} steps, a list that grows with each, {stages} stage{'s' * (stages > 1)}",
                      [size_of(handle.session.layout.root) / count], "bytes", at_most=400)
