"""What a fork costs at any length: time against the syncs it cannot do without, and bytes."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from pathlib import Path

from measure import SAMPLES, Row, row, size_of, timed
from workloads import run

from ipyagent_sessions import Session, Store
from ipyagent_sessions.log.files import sync_file, sync_folder

LENGTHS = (100, 10_000, 200_000)


def measure(work: Path) -> Iterator[Row]:
    sessions = {length: run(work / f"of-{length}", length // 2, durability="exit").session for length in LENGTHS}
    newest = {length: session.last_seq() for length, session in sessions.items()}
    took: dict[str, list[tuple[float, float]]] = {}
    sizes: dict[int, list[float]] = {length: [] for length in LENGTHS}
    floor: list[float] = []
    for i in range(SAMPLES + 1):  # the first one imports and warms up
        floor.append(timed(lambda at=work / f"bare-{i}": _syncs(at))[0] * 1000)
        for length, session in sessions.items():
            for where, seq in (("at its end", newest[length]), ("in its middle", _resting(session, newest[length] // 2))):
                fresh = Store(session.place.root).session(session.id)
                made: list[Session] = []
                spent = timed(lambda seq=seq, fresh=fresh, made=made: made.append(fresh.fork(seq)))
                took.setdefault(f"fork of {length:,} events {where}", []).append(spent)
                sizes[length].append(size_of(made[0].layout.root))
    yield row("five syncs of small files and folders, by hand: what a fork cannot do without", floor[1:], "ms")
    for what, spent in took.items():
        cpu = statistics.median(s[1] for s in spent[1:]) * 1000
        yield row(what, [s[0] * 1000 for s in spent[1:]], "ms", at_most=5, note=f"CPU {cpu:.1f} ms")
    for length in LENGTHS:
        yield row(f"bytes that a fork of {length:,} events writes", sizes[length], "bytes", at_most=8192)


def _resting(session: Session, seq: int) -> int:
    """The first event at or after `seq` where no activity is open."""
    while session.open_activities(seq):
        seq += 1
    return seq


def _syncs(folder: Path) -> None:
    """The same files as a fork makes, by hand: two small ones, each renamed to its place, and the folders that hold them."""
    folder.mkdir()
    for name in ("header", "journal"):
        temporary = folder / f"{name}.tmp"
        with open(temporary, "wb") as file:
            file.write(b"x" * 300)
            file.flush()
            sync_file(file.fileno())
        os.replace(temporary, folder / name)
        sync_folder(folder)
    sync_folder(folder.parent)
