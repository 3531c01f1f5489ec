"""How much memory and disk there is for a task, what is nearly used up, and whether the system has killed for lack of memory.

Where a container or a batch system limits a process, that limit counts and not the machine's memory: it is the one that kills
(control groups, cgroup-v2(7) and version 1).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from ipyagent_sessions.payloads import AlarmRaised

MUCH: Final = 0.9
"""The part of the memory from which it is nearly used up."""
LITTLE: Final = 0.01
LITTLE_BYTES: Final = 2**30
"""The disk is nearly full below this part of it, but not while more bytes than these are free."""
_EASED: Final = 0.95
"""An alarm is over once use has fallen below this part of its bound, or free space has risen by as much."""

_NO_LIMIT: Final = 2**60
"""What version 1 says where there is none is near 2**63."""
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
_COUNTERS: Final = Path("/proc/vmstat")


class Room(NamedTuple):
    """Bytes; `memory_used` without what the system can drop at once (caches)."""

    memory_used: int
    memory_total: int
    disk_free: int
    disk_total: int

    @property
    def memory_short(self) -> bool:
        return self.memory_used >= MUCH * self.memory_total

    @property
    def disk_short(self) -> bool:
        return self.disk_free <= min(LITTLE * self.disk_total, LITTLE_BYTES)


def room(folder: Path) -> Room:
    """What there is now, of the machine's memory or of the narrowest limit around this process, and of `folder`'s disk."""
    import psutil

    machine = psutil.virtual_memory()
    disk = shutil.disk_usage(folder)
    used, total = machine.total - machine.available, machine.total
    for limited in _limits():
        if limited[1] < total:
            used, total = limited
    return Room(used, total, disk.free, disk.total)


def allowed() -> int:
    """Bytes of memory that this process may use: the machine's, or those of the narrowest limit around it."""
    import psutil

    return min([psutil.virtual_memory().total, *(limit for _, limit in _limits())])


def cpus() -> int | None:
    """How many processors this process may run on, as far as the system says (sched_setaffinity(2))."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def kills() -> int | None:
    """How many processes the system has killed for lack of memory since it started; None where it does not say."""
    with contextlib.suppress(OSError):
        for line in _COUNTERS.read_text("utf-8").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def _limits() -> list[tuple[int, int]]:
    """Bytes used and allowed of each control group around this process that has a limit."""
    out: list[tuple[int, int]] = []
    for folder, limit, used, cached in _groups():
        with contextlib.suppress(OSError, ValueError):  # "max", or no such file: there is no limit here
            allowed = int((folder / limit).read_bytes())
            if allowed < _NO_LIMIT:
                stats = dict(line.split() for line in (folder / "memory.stat").read_text("utf-8").splitlines())
                out.append((max(0, int((folder / used).read_bytes()) - int(stats.get(cached, 0))), allowed))
    return out


def _groups() -> list[tuple[Path, str, str, str]]:
    """The groups of this process from the innermost on, with the names of their files for limit, use and droppable caches."""
    try:
        lines = _OWN.read_text("utf-8").splitlines()
    except OSError:
        return []
    out: list[tuple[Path, str, str, str]] = []
    for line in lines:
        _, kinds, inside = line.split(":", 2)
        if not kinds:
            top, files = _GROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            top, files = _GROUPS / kinds, ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        here = top / inside.lstrip("/")
        out += [(place, *files) for place in (here, *here.parents) if place == top or top in place.parents]
    return out


class Watch:
    """Says once when something is nearly used up, and again only after it has eased."""

    def __init__(self) -> None:
        self._memory = self._disk = False

    def look(self, now: Room) -> list[AlarmRaised]:
        """The alarms that `now` gives rise to (R135: before it fails, not after)."""
        out: list[AlarmRaised] = []
        if now.memory_short and not self._memory:
            used, total = now.memory_used / 1e9, now.memory_total / 1e9
            told = f"{used / total:.0%} of the memory is in use ({used:.1f} of {total:.1f} GB)"
            out.append(
                AlarmRaised("memory", f"{told}; the system may end this process: free some, or resume where there is more")
            )
        if now.disk_short and not self._disk:
            told = f"only {now.disk_free / 1e6:.0f} MB of the disk are free; once it is full, no effect begins any more"
            out.append(AlarmRaised("disk", f"{told}: free some"))
        self._memory = now.memory_short or (self._memory and now.memory_used >= _EASED * MUCH * now.memory_total)
        self._disk = now.disk_short or (self._disk and now.disk_free * _EASED <= min(LITTLE * now.disk_total, LITTLE_BYTES))
        return out
