"""What the witness of a run says about it, and the sum of many runs."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct, field
from tests.kill.peers.runs import Run
from tests.kill.peers.steps import APPROVAL, IRREVERSIBLE, RESULT, STEPS, kind_of

GOES_ON: Final = ("begin", "done")
"""With one of these notes a process that was started again has gone on."""


class Found(Struct):
    """Sums over the runs of one library; the times are in milliseconds."""

    runs: int = 0
    missed: int = 0
    deaths: Counter[str] = field(default_factory=Counter[str])
    executions: int = 0
    again: int = 0
    again_after_end: int = 0
    again_after_seen: int = 0
    twice: Counter[str] = field(default_factory=Counter[str])
    persons: int = 0
    wrong: list[str] = field(default_factory=list[str])
    on_ms: list[float] = field(default_factory=list[float])
    on_without_imports_ms: list[float] = field(default_factory=list[float])

    def add(self, run: Run) -> None:
        notes = run.witness.notes()
        self.runs += 1
        self.missed += run.missed
        self.deaths.update(death.word for death in run.deaths)
        self._executions(notes)
        self.persons += sum(n["w"] == "person" for n in notes)
        had = Counter(n["id"] for n in notes if n["w"] == "effect")
        self.twice.update(kind_of(who) for who, n in had.items() if n > 1 and kind_of(who) in IRREVERSIBLE)
        wrong = run.wrong or _wrong_end(notes, had)
        if wrong:
            self.wrong.append(f"{run.folder.name}: {wrong}")
        self._times(notes)

    def _executions(self, notes: list[dict[str, Any]]) -> None:
        """Executions again: at all, after one that had come to its end, and after what follows had been given the result."""
        begun: set[str] = set()
        ended: set[str] = set()
        seen: set[str] = set()
        for note in notes:
            who = note.get("id", "")
            if note["w"] == "begin":
                self.executions += 1
                self.again += who in begun
                self.again_after_end += who in ended
                self.again_after_seen += who in seen
                begun.add(who)
            elif note["w"] == "end":
                ended.add(who)
            elif note["w"] == "seen" and who != APPROVAL:
                seen.add(who)

    def _times(self, notes: list[dict[str, Any]]) -> None:
        """Of each process after the first: from its start, and from the end of its imports, to the first thing it does."""
        starts = [at for at, n in enumerate(notes) if n["w"] == "started"]
        for at, end in pairwise([*starts[1:], len(notes)]):
            own = notes[at:end]
            first = next((n["t"] for n in own if n["w"] in GOES_ON), None)
            ready = next((n["t"] for n in own if n["w"] == "ready"), None)
            if first is not None and ready is not None:
                self.on_ms.append((first - own[0]["t"]) * 1000)
                self.on_without_imports_ms.append((first - ready) * 1000)


def _wrong_end(notes: list[dict[str, Any]], had: Counter[str]) -> str:
    """What is wrong with the end of a run that did end; one killed after its end is asked once more."""
    results = [n["result"] for n in notes if n["w"] == "done"]
    if not results or any(result != RESULT for result in results):
        return f"its result is {results}"
    never = [step for step in STEPS if kind_of(step) != "look" and not had[step]]
    return f"never had, although the run says so: {never}" if never else ""
