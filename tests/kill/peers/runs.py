"""One run of one library, killed as its plan says and started again until it has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from tests.kill.nursery import ROOT, child_environment
from tests.kill.peers.deaths import Death
from tests.kill.witness import Witness

OWN: Final = "by_ipyagent"
CHILD_S: Final = 60.0
CHILDREN: Final = 20
"""More processes than this mean that a run does not get anywhere."""


class Library(Struct, frozen=True):
    """A module of `tests.kill.peers.libraries` and the interpreter in whose environment it runs."""

    module: str
    python: str

    def start(self, folder: Path, death: Death | None = None) -> subprocess.Popen[bytes]:
        """A process that begins or goes on in `folder`, and kills itself where `death` says so."""
        where = [death.word, death.who] if death and death.word else []
        with open(folder / "errors.txt", "ab") as errors:
            return self._process([str(folder), *where], subprocess.DEVNULL, errors)

    def version(self) -> str:
        """What is installed, or `missing: ...`."""
        out, errors = self._process([], subprocess.PIPE, subprocess.PIPE).communicate(timeout=CHILD_S)
        return out.decode().strip() or f"missing: {errors.decode().strip()[-200:]}"

    def _process(self, more: list[str], out: int, errors: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.python, "-P", "-m", "tests.kill.peers.child", self.module, *more],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            env=child_environment() if self.module == OWN else {**os.environ, "PYTHONPATH": str(ROOT)},
        )


class Run(Struct):
    """What was done to a run, and what is wrong with its end; the rest stands in its witness."""

    folder: Path
    deaths: list[Death] = field(default_factory=list[Death])
    missed: int = 0
    wrong: str = ""

    @property
    def witness(self) -> Witness:
        return Witness(str(self.folder / "witness.jsonl"))


def go(library: Library, folder: Path, plan: list[Death], whole_s: float) -> Run:
    """Run it to its end; `whole_s` are the seconds that a run without a death takes."""
    folder.mkdir(parents=True)
    run, left, errors = Run(folder), list(plan), 0
    for _ in range(CHILDREN):
        death = _next(run, left)
        status = _one(library, run, death, whole_s)
        if status == 0:
            run.missed += len(left) + (death is not None)
            return run
        if status == -signal.SIGKILL and death is not None:
            run.deaths.append(death)
            continue
        errors += 1
        if errors == 3:
            break
    run.wrong = f"it does not end: {(folder / 'errors.txt').read_text(errors='replace').strip()[-300:] or 'no error'}"
    return run


def _next(run: Run, left: list[Death]) -> Death | None:
    """The next death that can still come; those whose note was made are past."""
    there = {(n["w"], n.get("id")) for n in run.witness.notes()}
    while left:
        death = left.pop(0)
        if (death.word, death.who) not in there:
            return death
        run.missed += 1
    return None


def _one(library: Library, run: Run, death: Death | None, whole_s: float) -> int:
    """Start a process and stay with it; its exit code."""
    witness = run.witness
    witness.note("started")
    child = library.start(run.folder, death)
    try:
        if death is not None and not death.word:
            _wait_for_ready(witness, child)
            try:
                return child.wait(death.part * whole_s)
            except subprocess.TimeoutExpired:
                child.kill()
        return child.wait(CHILD_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return 1
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def _wait_for_ready(witness: Witness, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + CHILD_S
    while not any(n["pid"] == child.pid for n in witness.notes("ready")):
        if child.poll() is not None or time.monotonic() > deadline:
            return
        time.sleep(0.002)


def here(module: str) -> Library:
    """The library in this interpreter's own environment."""
    return Library(module, sys.executable)
