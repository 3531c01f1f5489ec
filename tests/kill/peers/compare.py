"""The same steps, killed by the same plan, in ipyagent and in other libraries that keep their progress in SQLite.

    python -m tests.kill.campaign --peers PYTHON --kills 100 --seed 7

PYTHON is the interpreter of an environment in which they are installed; one that is not is named and left out.  What the
lines mean, and what cannot be compared, stands in docs/faults.md.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.kill.peers import deaths, runs
from tests.kill.peers.found import Found
from tests.kill.peers.runs import Library

NAMES: Final = {
    runs.OWN: "ipyagent",
    "by_dbos": "DBOS",
    "by_langgraph_nodes": "LG nodes",
    "by_langgraph_tasks": "LG tasks",
    "by_harness": "harness",
}
KILLS_A_RUN: Final = 6
"""About as many deaths of a plan come to pass."""

ROWS: Final[tuple[tuple[str, Callable[[Found], int]], ...]] = (
    *((f"killed: {said}", lambda found, word=word: found.deaths[word]) for word, said in deaths.WORDS.items()),
    ("killed in all", lambda found: found.deaths.total()),
    ("runs", lambda found: found.runs),
    ("executions of steps", lambda found: found.executions),
    ("  of those, again", lambda found: found.again),
    ("  of those, after an end that was not recorded", lambda found: found.again_after_end - found.again_after_seen),
    ("completed steps run again", lambda found: found.again_after_seen),
    ("charges had twice", lambda found: found.twice["charge"]),
    ("letters had twice", lambda found: found.twice["letter"]),
    ("runs ended wrongly", lambda found: len(found.wrong)),
    ("times a person was asked what happened", lambda found: found.persons),
)


def compare(folder: Path, *, python: str, kills: int, seed: int) -> tuple[dict[str, Found], dict[str, str]]:
    """What was found for each library, and what is installed of each; run by run in turn: all meet the same machine."""
    libraries = [runs.here(runs.OWN), *(Library(name, python) for name in NAMES if name != runs.OWN)]
    versions = {library.module: library.version() for library in libraries}
    libraries = [library for library in libraries if not versions[library.module].startswith("missing")]
    found = {library.module: Found() for library in libraries}
    whole_s = {library.module: _undisturbed(library, folder) for library in libraries}
    for number in range(max(1, round(kills / KILLS_A_RUN))):
        for library in libraries:
            plan = deaths.plan(seed, number)
            found[library.module].add(runs.go(library, folder / f"{library.module}-{number}", plan, whole_s[library.module]))
    return found, versions


def _undisturbed(library: Library, folder: Path) -> float:
    """Seconds from the end of the imports to the end of a run that nobody kills."""
    run = runs.go(library, folder / f"{library.module}-undisturbed", [], 0.0)
    check = Found()
    check.add(run)
    if check.wrong:
        raise RuntimeError(f"even the run that nobody kills goes wrong: {check.wrong}")
    times = {n["w"]: n["t"] for n in run.witness.notes("ready", "done")}
    return float(times["done"] - times["ready"])


def table(found: dict[str, Found], versions: dict[str, str]) -> str:
    lines = [f"{'':<48}" + "".join(f"{NAMES[name]:>12}" for name in found)]
    lines += [f"{said:<48}" + "".join(f"{count(one):>12}" for one in found.values()) for said, count in ROWS]
    for said, times in (
        ("ms from its start to its going on, p50 / p99", [f.on_ms for f in found.values()]),
        ("  from the end of its imports, p50 / p99", [f.on_without_imports_ms for f in found.values()]),
    ):
        lines.append(f"{said:<48}" + "".join(f"{_cuts(ms):>12}" for ms in times))
    lines += ["", *(f"{NAMES[name]}: {versions[name]}" for name in found)]
    lines += [f"NOT COMPARED: {NAMES[name]} is {said}" for name, said in versions.items() if name not in found]
    lines += [f"{NAMES[name]}, {wrong}" for name, one in found.items() for wrong in one.wrong[:10]]
    return "\n".join(lines)


def _cuts(ms: list[float]) -> str:
    if len(ms) < 2:
        return "-"
    cuts = statistics.quantiles(ms, n=100)
    return f"{cuts[49]:.0f}/{cuts[98]:.0f}"


def main(folder: Path, *, python: str, kills: int, seed: int) -> int:
    """Print the table; the exit code says whether anything that ipyagent promises was broken."""
    found, versions = compare(folder, python=python, kills=kills, seed=seed)
    print(table(found, versions))
    if len(found) < len(NAMES):
        print(f"not installed in {python}: see above", file=sys.stderr)
    own = found[runs.OWN]
    return 1 if own.wrong or own.again_after_seen or own.twice.total() else 0
