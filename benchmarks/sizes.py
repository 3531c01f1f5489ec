"""Bytes a step once the session rests: segments, checkpoints, journal and all the other files of its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measure import Row, row, size_of
from workloads import Quiet, growing, run

from ipyagent_sessions import Session, Store, run_workflow

COUNTS = (1_000, 10_000)


def measure(work: Path) -> Iterator[Row]:
    """The sizes hardly differ from run to run, so each is measured once."""
    for count in COUNTS:
        session = run(work / f"plain-{count}", count, disk=Quiet()).session
        yield from _rows(session, f"{count:,} steps", count)
    for count in COUNTS:
        for stages in (1, 20):
            handle = run_workflow(Store(work / f"growing-{count}-{stages}", disk=Quiet()), growing, (count, stages))
            handle.result()
            plural = "s" if stages > 1 else ""
            yield from _rows(handle.session, f"{count:,} steps, a list that grows with each, {stages} stage{plural}", count)


def _rows(session: Session, what: str, count: int) -> Iterator[Row]:
    """Everything, and without the journal whose events are sealed already and which the next seal removes."""
    whole = size_of(session.layout.root)
    journals = sum(journal.path.stat().st_size for journal in session.layout.journals())
    yield row(f"bytes a step once sealed, {what}", [(whole - journals) / count], "bytes", at_most=400)
    yield row("  with the journal that waits for the next seal", [whole / count], "bytes", at_most=400)
