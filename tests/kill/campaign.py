"""The kill campaign: runs of the workload are killed at every seam and at random times, and nothing that was promised is lost.

    python -m tests.kill.campaign --kills 1000 --seed 7
    python -m tests.kill.campaign --kills 100 --seed 7 --peers PYTHON     beside other libraries: tests/kill/peers/

Prints a table, and what is wrong if anything is; the exit code says the same.  The same campaign in its short form is
`tests/kill/test_campaign.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field
from tests.kill import looks
from tests.kill.looks import Reference
from tests.kill.nursery import Nursery
from tests.kill.peers import compare
from tests.kill.plan import ROWS, Pool
from tests.kill.trial import Happened, Trial
from tests.kill.workload import IRREVERSIBLE

from ipyagent_sessions.log.appender import Durability
from ipyagent_sessions.run import control
from ipyagent_sessions.run.launch import result_of

WORKLOADS: Final = 4
"""Different workloads (seeds of the workflow), each with one run that nobody kills."""
MODES: Final[tuple[Durability, ...]] = ("sync", "sync", "async", "sync", "async", "exit")


PROMISES: Final = {
    "acknowledged events lost": ("acknowledged event lost", "which is not on disk", "is not in the log", "never given"),
    "completed activities repeated": ("was executed again", "is recorded", "is both recorded"),
    "irreversible effects repeated": ("irreversible effect",),
    "runs ended wrongly": ("run ended wrongly", "does not end", "does not get on", "hung"),
}
"""The lines of the table that have to be 0, by what is said of a breach."""


class Report(Struct):
    """What a campaign has done and found."""

    kills: int = 0
    runs: int = 0
    seconds: float = 0.0
    unreached: Counter[str] = field(default_factory=Counter[str])
    deaths: list[Happened] = field(default_factory=list[Happened])
    wrong: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    recovered_ms: list[float] = field(default_factory=list[float])

    def of(self, *beginnings: str) -> list[str]:
        """What is wrong, of some kinds."""
        return [w for w in self.wrong if any(b in w for b in beginnings)]


def run(folder: Path, *, kills: int, seed: int, kernels: int = 10, jobs: int = 2) -> Report:
    """A campaign of at least `kills` deaths, `kernels` of them of real ipykernels, in `jobs` threads."""
    begun = time.monotonic()
    report = Report()
    pool = Pool(kills, kernels)
    numbers = itertools.count(1)
    with contextlib.closing(Nursery(folder / "nursery")) as nursery:
        references = {n: reference_of(folder, nursery, n) for n in range(seed, seed + WORKLOADS)}
    with ThreadPoolExecutor(jobs) as executor:
        for ended in executor.map(lambda job: _work(folder, job, pool, seed, references, numbers), range(jobs)):
            for trial in ended:
                _count(report, trial)
    report.seconds = time.monotonic() - begun
    report.unreached = pool.unreached
    report.kills, report.runs = len(report.deaths), len(references) + report.runs
    return report


def _work(
    folder: Path, job: int, pool: Pool, seed: int, references: dict[int, tuple[Reference, float]], numbers: Iterator[int]
) -> list[Trial]:
    """One thread's trials, until the pool is empty."""
    trials: list[Trial] = []
    nursery = Nursery(folder / f"nursery-{job}")
    with contextlib.closing(nursery):
        while not pool.empty:
            number = next(numbers)
            workload = seed + number % WORKLOADS
            reference, long_s = references[workload]
            rng = random.Random(f"{seed} {number}")
            trial = Trial(
                number,
                workload,
                folder / f"trial-{number}",
                nursery,
                MODES[number % len(MODES)],
                kernel=job == 0,
                long_s=long_s,
            )
            trial.go(pool, rng.randint(5, 12))
            finish(trial, reference)
            trials.append(trial)
            if len(trials) > 400:
                trial.wrong.append(f"the campaign does not get on: {dict(pool.left)}")
                break
    return trials


def reference_of(folder: Path, nursery: Nursery, seed: int) -> tuple[Reference, float]:
    """What a run that nobody kills comes to, and how many seconds it took."""
    trial = Trial(0, seed, folder / f"reference-{seed}", nursery, "sync")
    trial.go(None, 0)
    times = [n["t"] for n in trial.witness.notes()]
    session = trial.session()
    if session is None or trial.wrong:
        raise RuntimeError(f"even the run that nobody kills goes wrong: {trial.wrong} {trial.ended}")
    events = list(session.events())
    reference = Reference(
        result_of(session),
        frozenset(
            e.activity_id
            for e in events
            if e.event_type == "ActivityCompleted" and e.activity_id is not None and "/" in e.activity_id
        ),
        sum(e.event_type == "TextMeasured" for e in events),
    )
    finish(trial, reference)
    if trial.wrong:
        raise RuntimeError(f"even the run that nobody kills goes wrong: {trial.wrong}")
    return reference, times[-1] - times[0]


def finish(trial: Trial, reference: Reference) -> None:
    """Bring a run that is over to rest, as the sweeper does with one that was killed while it closed, and look at it."""
    session = trial.session()
    if session is not None and (session.layout.holder.exists() or not trial.ended):
        control.attend(session, by="sweeper")
    found = trial.look(lambda: looks.at_end(trial.store(), trial.witness, trial.durability, reference))
    trial.wrong += [f"trial {trial.number} at its end: {w}" for w in found or ()]


def _count(report: Report, trial: Trial) -> None:
    report.runs += 1
    report.deaths += trial.deaths
    report.wrong += trial.wrong
    notes = trial.witness.notes()
    words = Counter(n["w"] for n in notes)
    begun = Counter(n["id"] for n in notes if n["w"] == "begin")
    acked = [e for n in notes if n["w"] == "acked" for e in n["events"]]
    counts = report.counts
    counts[f"runs in mode {trial.durability}"] += 1
    counts["processes started"] += words["opened"]
    counts["events acknowledged"] += len(acked)
    counts["completions acknowledged"] += sum(e[2] == "ActivityCompleted" and "/" in (e[3] or "") for e in acked)
    counts["executions of activities"] += begun.total()
    counts["  of those, again because nothing was recorded"] += begun.total() - len(begun)
    counts["irreversible effects"] += sum(n["w"] == "effect" and n["id"].startswith(IRREVERSIBLE) for n in notes)
    for note in notes:
        if note["w"] == "outage":
            counts[f"outages met: {note['kind']}"] += 1
    session = trial.session()
    events = list(session.events()) if session is not None else []
    reasons = Counter(msgspec.json.decode(e.payload)["reason"] for e in events if e.event_type == "TaskSuspended")
    counts["  waited for or suspended: network"] += reasons["network"]
    counts["  waited for or suspended: resources"] += reasons["resources"]
    if session is not None and session.summary().state != "completed":
        report.wrong.append(f"run ended wrongly: trial {trial.number} is {session.summary().state}")
    types = Counter(e.event_type for e in events)
    counts["  settled by verify"] += sum(
        e.event_type == "ActivityCompleted" and b'"verified":"verify"' in bytes(e.payload) for e in events
    )
    counts["  settled by a person"] += sum(
        e.event_type == "ApprovalRequested" and b'"kind":"outcome"' in bytes(e.payload) for e in events
    )
    counts["approvals answered"] += types["ApprovalResolved"]
    counts["recoveries logged"] += types["RecoveryCompleted"]
    counts["torn tails cut"] += sum(e.event_type == "AlarmRaised" and b"torn_tail" in bytes(e.payload) for e in events)
    counts["snapshots taken"] += types["CheckpointCreated"]
    report.recovered_ms += _recoveries(notes)


def _recoveries(notes: list[dict[str, Any]]) -> list[float]:
    """Milliseconds from the beginning of each process that went on to its first acknowledged event."""
    opened: dict[int, float] = {}
    out = []
    for note in notes:
        if note["w"] == "opened" and note["role"] != "door":
            opened[note["pid"]] = note["t"]
        elif note["w"] == "acked" and note["pid"] in opened:
            began = opened.pop(note["pid"])
            if any(e[2] == "TaskResumed" for e in note["events"]):
                out.append((note["t"] - began) * 1000)
    return out


def table(report: Report) -> str:
    """The report as text."""
    hosts = ("child", "kernel", "door")
    by = Counter((d.row, d.host) for d in report.deaths)
    lines = [f"{'SIGKILL':<28}" + "".join(f"{h:>8}" for h in hosts) + f"{'all':>8}"]
    for row in ROWS:
        numbers = [by[row, h] for h in hosts]
        lines.append(f"{row:<28}" + "".join(f"{n or '':>8}" for n in numbers) + f"{sum(numbers):>8}")
    total = [sum(by[row, h] for row in ROWS) for h in hosts]
    lines.append(f"{'all':<28}" + "".join(f"{n:>8}" for n in total) + f"{sum(total):>8}")
    deaths = report.deaths
    lines += [
        "",
        f"in flight at these {len(deaths)} kills: open activities at {sum(d.activities > 0 for d in deaths)} (several at "
        f"{sum(d.activities > 1 for d in deaths)}), an irreversible one at {sum(d.irreversible > 0 for d in deaths)}, an open "
        f"question at {sum(d.questions > 0 for d in deaths)}, an unfinished file at {sum(d.files > 0 for d in deaths)}",
        "",
    ]
    lines += [f"{name:<48}{n:>8}" for name, n in report.counts.items()]
    lines += [f"{name:<48}{len(report.of(*kinds)):>8}" for name, kinds in PROMISES.items()]
    if len(report.recovered_ms) > 1:
        cuts = statistics.quantiles(report.recovered_ms, n=100)
        lines.append(f"{'ms to go on again, p50 / p99':<48}{cuts[49]:>8.0f} / {cuts[98]:.0f}")
    lines += [
        "",
        f"{report.kills} kills in {report.runs} runs, {report.seconds:.0f} s; {report.unreached.total()} planned kills came "
        f"too late and were planned again; wrong: {len(report.wrong)}",
    ]
    return "\n".join([*lines, *report.wrong[:40]])


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill runs at every seam and at random times, and look what is left.")
    parser.add_argument("--kills", type=int, default=110)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernels", type=int, default=10, help="how many of the killed are real ipykernels")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="an empty folder to keep the stores and witnesses in")
    parser.add_argument(
        "--peers",
        metavar="PYTHON",
        help="instead: a few steps, killed alike here and in the libraries of that PYTHON",
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if asked.peers:
            return compare.main(asked.keep or Path(temporary), python=asked.peers, kills=asked.kills, seed=asked.seed)
        report = run(asked.keep or Path(temporary), kills=asked.kills, seed=asked.seed, kernels=asked.kernels, jobs=asked.jobs)
    print(table(report))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
