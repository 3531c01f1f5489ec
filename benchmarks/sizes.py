"""Bytes a step once the session rests: segments, checkpoints, journal and all the other files of its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measure import Row, row, size_of
from workloads import Quiet, asking, growing, run

from ipyagent_sessions import Session, Store, run_workflow
from ipyagent_sessions.run.task import RunOptions

COUNTS = (1_000, 10_000)


def measure(work: Path) -> Iterator[Row]:
    """The sizes hardly differ from run to run, so each is measured once."""
    for count in COUNTS:
        session = run(work / f"plain-{count}", count, disk=Quiet()).session
        yield _row(session, f"{count:,} steps", count)
    handle = run_workflow(Store(work / "asking", disk=Quiet()), asking, (COUNTS[0],), options=RunOptions(headless=True))
    handle.wait()
    yield _row(handle.session, f"{COUNTS[0]:,} steps and a question that waits", COUNTS[0])
    for count in COUNTS:
        for stages in (1, 20):
            handle = run_workflow(Store(work / f"growing-{count}-{stages}", disk=Quiet()), growing, (count, stages))
            handle.result()
            plural = "s" if stages > 1 else ""
            yield _row(handle.session, f"{count:,} steps, a list that grows with each, {stages} stage{plural}", count)


def _row(session: Session, what: str, count: int) -> Row:
    """Everything in the session's folder, journals too."""
    return row(f"bytes a step at rest, {what}", [size_of(session.layout.root) / count], "bytes", at_most=400)
