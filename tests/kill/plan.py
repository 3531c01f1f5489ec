"""Which deaths there are, how many of each, and who dies which one next.

A quota for every seam of `files.SEAMS`, for a death in the middle of a write, on either side of an irreversible effect (a
share of it for each such activity, since each is settled in its own way), while an approval is open, and at any other moment.
Trials draw from one pool, at random but seeded, what fits their state; a death that a child did not live to see goes back into
the pool.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Final

from msgspec import Struct
from tests.kill.child import EFFECT, INTENT, TORN
from tests.kill.workload import IRREVERSIBLE

from ipyagent_sessions.log.files import SEAMS

WAITING: Final = "while an approval is open"
ANY_TIME: Final = "at a random time"
HEADER: Final = tuple(s for s in SEAMS if "header" in s)
TAIL: Final = tuple(s for s in SEAMS if "tail" in s)
ASKING: Final = tuple(s for s in SEAMS if "control rename" in s)
ANSWERING: Final = tuple(s for s in SEAMS if "control logged" in s)
BODY: Final = tuple(s for s in SEAMS if s not in (*HEADER, *TAIL, *ASKING, *ANSWERING))
ROWS: Final = (*SEAMS, TORN, INTENT, EFFECT, WAITING, ANY_TIME)

_PASSINGS: Final = {"journal": 16, "blob": 3, "seal": 4, "checkpoint": 6, "epoch": 3}
"""A death at a seam comes at its first to n-th passing in that process, one in three up to four times as late."""


class Death(Struct, frozen=True):
    """One planned kill.  `row` is its line of the table; `at` counts the passings of a seam, at an irreversible effect those
    by the activity `of`; `delay` is in seconds."""

    row: str
    at: int = 1
    delay: float = 0.0
    of: str = ""
    kernel: bool = False

    @property
    def seam(self) -> str:
        """What the child is told; empty when it is killed from outside."""
        return "" if self.row in (WAITING, ANY_TIME) else self.row

    @property
    def needs_quiet(self) -> bool:
        """Whether nobody else may answer or mend anything before the process it is meant for."""
        return self.row in (WAITING, *ANSWERING, *TAIL)


class Situation(Struct, frozen=True):
    """What is true of a trial when its next child is about to start."""

    fresh: bool
    torn: bool
    long_s: float


class Pool:
    """The deaths that are still to come.  Safe to use from several threads."""

    def __init__(self, kills: int, kernels: int) -> None:
        each = max(3, round(kills * 0.55 / len(SEAMS)))
        self.left: Counter[str] = Counter(dict.fromkeys(SEAMS, each))
        self.left[TORN] = 2 * each + 1
        self.left[INTENT] = self.left[EFFECT] = 2 * each
        turns = [IRREVERSIBLE[n % len(IRREVERSIBLE)] for n in range(2 * each)]
        self.left_of: dict[str, Counter[str]] = {INTENT: Counter(turns), EFFECT: Counter(turns)}
        self.left[WAITING] = max(6, kills // 15)
        self.left[ANY_TIME] = max(kills // 6, kills - self.left.total())
        self.kernels = kernels
        self.unreached: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def empty(self) -> bool:
        return not any(n > 0 for n in self.left.values())

    def draw(self, rng: random.Random, now: Situation, *, kernel: bool = False) -> Death | None:
        """A death for a child that runs the task, None when none that is left fits."""
        fits = [*BODY, *ANSWERING, TORN, INTENT, EFFECT, WAITING, ANY_TIME]
        if now.torn:
            fits = list(TAIL)
        elif now.fresh and rng.random() < 0.7:
            fits = list(HEADER)
        with self._lock:
            rows = [row for row in fits if self.left[row] > 0] or [row for row in BODY if self.left[row] > 0]
            if not rows and any(self.left[row] > 0 for row in TAIL) and not now.fresh:
                rows = [TORN]  # beyond its quota, since without a torn tail none is mended
            if not rows:
                return None
            row = rng.choices(rows, [max(1, self.left[row]) for row in rows])[0]
            self.left[row] -= 1
            of = self._draw_of(rng, row)
            in_kernel = kernel and self.kernels > 0 and row not in HEADER
            self.kernels -= in_kernel
        delay = now.long_s * rng.uniform(0.02, 1.0) * (1.0 if now.fresh else rng.random())
        return Death(row, self._at(rng, row), round(delay, 3), of, in_kernel)

    def _draw_of(self, rng: random.Random, row: str) -> str:
        """The activity that such a death is of, if it is of one."""
        if row not in self.left_of:
            return ""
        of = rng.choice([of for of, n in self.left_of[row].items() if n > 0])
        self.left_of[row][of] -= 1
        return of

    def draw_door(self, rng: random.Random, *, held: bool) -> Death | None:
        """A death for a process that asks something of the task; when nobody holds the lease it logs its request itself."""
        fits = ASKING if held else (*ASKING, *ANSWERING)
        with self._lock:
            rows = [row for row in fits if self.left[row] > 0]
            if not rows:
                return None
            row = rng.choice(rows)
            self.left[row] -= 1
        return Death(row)

    def _at(self, rng: random.Random, row: str) -> int:
        if row in (*HEADER, INTENT, EFFECT):
            return rng.randint(1, 3)
        most = next((n for word, n in _PASSINGS.items() if word in row), 1)
        return rng.randint(1, most if rng.random() < 0.67 else 4 * most)

    def give_back(self, death: Death) -> None:
        """It did not come to pass."""
        with self._lock:
            self.left[death.row] += 1
            if death.of:
                self.left_of[death.row][death.of] += 1
            self.kernels += death.kernel
            self.unreached[death.row] += 1
