"""What every benchmark shares: samples, medians, rows of the table, bare writes to compare with, and child processes."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SAMPLES = 5


@dataclass
class Row:
    """One line of the table.  `bound` is met when `measured` is on the right side of it; None: shown for comparison only."""

    what: str
    measured: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    samples: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def ok(self) -> bool | None:
        if self.at_least is None and self.at_most is None:
            return None
        return (self.at_least or 0.0) <= self.measured <= (math.inf if self.at_most is None else self.at_most)

    @property
    def bound(self) -> str:
        if self.at_least is not None:
            return f">= {number(self.at_least)}"
        return "" if self.at_most is None else f"<= {number(self.at_most)}"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}


def row(
    what: str,
    samples: Sequence[float],
    unit: str = "",
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    note: str = "",
) -> Row:
    """A row whose value is the median of `samples`."""
    return Row(what, statistics.median(samples), unit, at_least, at_most, list(samples), note)


def number(value: float) -> str:
    """Three significant digits, thousands with commas."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    shown = {True: "yes", False: "NO", None: ""}
    cells = [("what", "measured", "bound", "ok")]
    cells += [
        (f"{r.what} ({r.note})" if r.note else r.what, f"{number(r.measured)} {r.unit}".strip(), r.bound, shown[r.ok])
        for r in rows
    ]
    widths = [max(len(c[i]) for c in cells) for i in range(4)]
    lines = ["| " + " | ".join(text.ljust(width) for text, width in zip(c, widths, strict=True)) + " |" for c in cells]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def bare(folder: Path, count: int, size: int) -> float:
    """Seconds that one `os.write` and one sync of `size` bytes take, the mean over `count` of them in a fresh file."""
    path = folder / "bare"
    data = b"x" * (size - 1) + b"\n"
    sync = getattr(os, "fdatasync", os.fsync)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    try:
        begun = time.perf_counter()
        for _ in range(count):
            os.write(fd, data)
            sync(fd)
        return (time.perf_counter() - begun) / count
    finally:
        os.close(fd)
        path.unlink()


def beside(folder: Path, count: int, size: int, measured: Callable[[], float]) -> tuple[float, float]:
    """Seconds of a `bare` write, the mean of one measurement before and one after, and of what is `measured` in between."""
    before = bare(folder, count, size)
    took = measured()
    return (before + bare(folder, count, size)) / 2, took


def timed(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds that `function` takes: of the clock, and of this thread's CPU."""
    begun, used = time.perf_counter(), time.thread_time()
    function()
    return time.perf_counter() - begun, time.thread_time() - used


def size_of(folder: Path) -> int:
    """The bytes of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def child_environment(work: Path) -> dict[str, str]:
    """The environment of a child process: byte code is cached, as it is where a user has installed the package.

    The threads that OpenBLAS starts when NumPy is imported spin for some 100 ms and would take the processor from what is
    measured, so there are none."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(work.parent / "pycache"), "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def child(work: Path, *arguments: object, killed: bool = False, python: str = sys.executable, script: str = "child.py") -> Any:
    """What `script` prints as JSON, run in a fresh process; None when it is expected to kill itself."""
    command = [python, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=child_environment(work))
    if killed and done.returncode < 0:
        return None
    if done.returncode != 0 or killed:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])
