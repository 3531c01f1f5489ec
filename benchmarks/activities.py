"""What an activity costs, against one bare write and sync of the same bytes on the same disk."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from measure import SAMPLES, Row, beside, row
from workloads import Counting, Quiet, Ran, run

from ipyagent_sessions.log.appender import Durability
from ipyagent_sessions.run.definitions import Effect

SYNCED, QUIET, FAST = 1_000, 5_000, 20_000
"""Activities in a sample of each kind."""


def measure(work: Path) -> Iterator[Row]:
    size, size_effect = _bytes(work / "size", "none"), _bytes(work / "size-effect", "idempotent")
    free, effect, floors = [], [], []
    for i in range(SAMPLES):
        floor, took = beside(work, SYNCED, size, lambda at=work / f"free-{i}": run(at, SYNCED).wall)
        floors.append(floor)
        free.append(floor / took)
        floor, took = beside(work, SYNCED, size_effect, lambda at=work / f"effect-{i}": run(at, SYNCED, "idempotent").wall)
        effect.append(floor / took)
    note = f"{size} bytes, the bare one takes {statistics.median(floors) * 1e6:.0f} µs"
    yield row("sync, effect-free: bare write+fdatasync / activity", free, at_least=0.7, note=note)
    yield row(
        "sync, with an effect (two syncs): one bare write+fdatasync / activity",
        effect,
        at_least=0.35,
        note=f"{size_effect} bytes",
    )
    own: dict[Effect, list[Ran]] = {"none": [], "idempotent": []}
    fast: dict[Durability, list[Ran]] = {"async": [], "exit": []}
    for i in range(SAMPLES):
        for kind in own:
            own[kind].append(run(work / f"own-{kind}-{i}", QUIET, kind, disk=Quiet()))
        for mode in fast:
            fast[mode].append(run(work / f"{mode}-{i}", FAST, durability=mode))
    for kind, name in (("none", "effect-free"), ("idempotent", "with an effect")):
        wall = statistics.median(r.wall for r in own[kind]) * 1e6
        yield row(
            f"engine's own time an activity besides the syncs, {name}",
            [r.cpu * 1e6 for r in own[kind]],
            "µs CPU",
            at_most=60,
            note=f"{wall:.0f} µs by the clock",
        )
    for mode, found in fast.items():
        cpu = 1 / statistics.median(r.cpu for r in found)
        yield row(
            f"{mode}, activities a second",
            [1 / r.wall for r in found],
            at_least=20_000,
            note=f"{cpu:,.0f} a CPU second of its thread",
        )


def _bytes(folder: Path, effect: Effect) -> int:
    """Journal bytes of one activity, measured; also the warm-up."""
    disk = Counting()
    run(folder, 500, effect, disk=disk)
    return disk.bytes // 500
