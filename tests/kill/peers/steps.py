"""The work that every library is given: stages one after the other, the steps of a stage in parallel, and one question to a
person between `BEFORE` and `AFTER`.

Needs nothing but the standard library: it runs in environments in which ipyagent is not installed.  The kinds of steps:

    look     no effect
    put      idempotent: leaves the same world however often it runs
    charge   irreversible, and the world can be asked whether it happened
    letter   irreversible, and nobody but a person can say whether it went out
"""

from __future__ import annotations

import os
import time
from typing import Final

from tests.kill.witness import Witness

BEFORE: Final = (
    ("look:1", "look:2", "look:3", "look:4"),
    ("put:1",),
    ("put:2",),
    ("charge:1", "charge:2"),
    ("charge:3",),
)
AFTER: Final = (("letter:1",), ("letter:2",), ("letter:3",), ("put:3", "put:4"))
STEPS: Final = tuple(step for stage in (*BEFORE, *AFTER) for step in stage)
QUESTION: Final = "Send the letters?"
APPROVAL: Final = "approval"
"""Who the question is in the witness."""
PACE_S: Final = 0.008
IRREVERSIBLE: Final = ("charge", "letter")


def kind_of(step: str) -> str:
    return step.partition(":")[0]


def result_of(step: str) -> str:
    """What `step` gives, however often and by whomever it is run."""
    return f"{step} is done"


RESULT: Final = [result_of(step) for step in STEPS]
"""What a whole run gives."""


def perform(world: str, step: str, *, asks_first: bool) -> str:
    """One real execution, noted on the disk at its beginning, at its effect and at its end.

    With `asks_first` a `charge` first looks whether it happened already: what every library's documentation asks of a
    step that may run again.  A `letter` cannot look."""
    witness = Witness(world)
    note(witness, "begin", step)
    time.sleep(PACE_S)
    done = asks_first and kind_of(step) == "charge" and witness.happened(step)
    if kind_of(step) != "look" and not done:
        note(witness, "effect", step)
        time.sleep(PACE_S)
    note(witness, "end", step)
    return result_of(step)


def note(witness: Witness, word: str, who: str) -> None:
    """A note that is on the disk when this returns, or was never made."""
    fd = os.open(witness.path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        witness.note(word, id=who)
        os.fsync(fd)
    finally:
        os.close(fd)
