"""Measure the engine and print the table of docs/performance.md.

    python benchmarks/run.py                     everything; some minutes
    python benchmarks/run.py --only forks sizes  some of it
    python benchmarks/run.py --peers [PYTHON]    also LangGraph and DBOS, in the environment of PYTHON

Every ratio is measured within this run, its two sides interleaved; values are medians of five, but bytes a step; imports are
not counted.  This is no test: the exit code is 0 unless something could not run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from measure import Row, child, row, table

PARTS = ("activities", "resume", "forks", "sizes", "loading", "snapshots", "growth", "queries", "large", "agents")
OUT = Path(__file__).parents[1] / "build" / "bench"


def peers(work: Path, python: str) -> Iterator[Row]:
    """The rows of other libraries; says which of them are not installed."""
    for name, found in child(work, work / "peers", 600, python=python, script="peers.py").items():
        if found is None:
            print(f"  {name}: not installed in {python}")
            continue
        yield row(f"{name}: bare write+fdatasync / step", [found["ratio"]], note=f"{found['per_s']:,.0f} steps/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument(
        "--peers", nargs="?", const=sys.executable, metavar="PYTHON", help="also LangGraph and DBOS, in that environment"
    )
    options = parser.parse_args()
    rows: list[Row] = []
    OUT.mkdir(parents=True, exist_ok=True)
    for part in [*options.only, *(["peers"] if options.peers else [])]:
        print(f"{part} ...", file=sys.stderr, flush=True)
        work = Path(tempfile.mkdtemp(prefix=f"{part}-", dir=OUT))
        try:
            rows += peers(work, options.peers) if part == "peers" else importlib.import_module(part).measure(work)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    machine = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "platform": platform.platform(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
    }
    print(table(rows))
    result = OUT / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    result.write_text(
        json.dumps({"machine": machine, "rows": [r.as_dict() for r in rows]}, indent=1, ensure_ascii=False), "utf-8"
    )
    print(f"\nsamples: {os.path.relpath(result)}")


if __name__ == "__main__":
    main()
