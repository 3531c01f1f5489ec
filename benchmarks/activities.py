"""What an activity costs, against one bare write and sync of the same bytes on the same disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measure import SAMPLES, Row, bare, row
from workloads import Counting, Quiet, run

SYNCED, QUIET, FAST = 1_000, 5_000, 20_000
"""Activities in a sample of each kind."""


def measure(work: Path) -> Iterator[Row]:
    size = _bytes(work / "size", "none")
    size_effect = _bytes(work / "size-effect", "idempotent")
    free, effect, sync_us = [], [], []
    for i in range(SAMPLES):
        floor = bare(work, SYNCED, size)
        free.append(floor / run(work / f"free-{i}", SYNCED)[0])
        sync_us.append(floor * 1e6)
        effect.append(bare(work, SYNCED, size_effect) / run(work / f"effect-{i}", SYNCED, "idempotent")[0])
    yield row("sync, effect-free: bare write+fdatasync / activity", free, at_least=0.7,
              note=f"{size} bytes, the bare one takes {sorted(sync_us)[SAMPLES // 2]:.0f} µs")
    yield row("sync, with an effect (two syncs): one bare write+fdatasync / activity", effect, at_least=0.35, note=f"{size_effect} bytes")

    own, own_effect, fast, at_end = [], [], [], []
    for i in range(SAMPLES):
        own.append(run(work / f"own-{i}", QUIET, disk=Quiet())[0] * 1e6)
        own_effect.append(run(work / f"own-effect-{i}", QUIET, "idempotent", disk=Quiet())[0] * 1e6)
        fast.append(1 / run(work / f"async-{i}", FAST, durability="async")[0])
        at_end.append(1 / run(work / f"exit-{i}", FAST, durability="exit")[0])
    yield row("engine's own time an activity, syncs left out, effect-free", own, "µs", at_most=60)
    yield row("engine's own time an activity, syncs left out, with an effect", own_effect, "µs", at_most=60)
    yield row("async, activities a second", fast, at_least=20_000)
    yield row("exit, activities a second", at_end, at_least=20_000)


def _bytes(folder: Path, effect: str) -> int:
    """Journal bytes of one activity, measured; also the warm-up."""
    disk = Counting()
    run(folder, 500, "none" if effect == "none" else "idempotent", disk=disk)
    return disk.bytes // 500
