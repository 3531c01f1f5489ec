"""When a run is killed: the same plan for every library, from one seed.

A death comes right after a note in the witness (a step has begun, has had its effect, has ended, its result has been given to
what follows, a person has been asked), or at a random time soon after a process has begun or gone on.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from tests.kill.peers.steps import APPROVAL, BEFORE, STEPS

WORDS: Final = {
    "begin": "a step has begun",
    "effect": "an irreversible effect was had",
    "end": "a step has ended",
    "seen": "its result was given to what follows",
    "asked": "a person was asked",
    "": "at a random time",
}

SOON: Final = 0.25
"""Of a whole run: later, and the places that come next would be past."""


class Death(NamedTuple):
    """`word` and `who` are those of the note; without them `part` of the time of a whole run after the imports."""

    word: str
    who: str
    part: float = 0.0


def plan(seed: int, run: int) -> list[Death]:
    """The deaths of one run, in the order in which it comes to them."""
    rng = random.Random(f"{seed} {run}")
    letters = [s for s in STEPS if s.startswith("letter")]
    charges = [s for s in STEPS if s.startswith("charge")]
    placed = [
        Death(rng.choice(("begin", "effect", "end")), rng.choice(charges)),
        Death("effect", rng.choice(letters)),
        Death(rng.choice(("begin", "end")), rng.choice(letters)),
        Death("end", rng.choice(STEPS)),
        Death("seen", rng.choice(STEPS[:-2])),
    ]
    if rng.random() < 0.5:
        placed.append(Death("asked", APPROVAL))
    placed = sorted(set(placed), key=_place)
    for _ in range(2):
        placed.insert(rng.randrange(len(placed) + 1), Death("", "", round(rng.uniform(0.0, SOON), 3)))
    return placed


def _place(death: Death) -> tuple[float, int]:
    """Where on its way a run comes to it."""
    question = sum(len(stage) for stage in BEFORE) - 0.5
    place = question if death.who == APPROVAL else float(STEPS.index(death.who))
    return place, list(WORDS).index(death.word)
