"""The comparison counts what it says, gives every library the same plan, and says which one is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.kill.peers import compare, deaths, runs
from tests.kill.peers.found import Found
from tests.kill.peers.runs import Run
from tests.kill.peers.steps import RESULT, STEPS, kind_of
from tests.kill.witness import Witness

pytestmark = pytest.mark.timeout(180)


def told(folder: Path, *notes: str) -> Found:
    """What is found in a witness of such notes, each a word and who."""
    witness = Witness(str(folder / "witness.jsonl"))
    for note in notes:
        word, _, who = note.partition(" ")
        witness.note(word, **({"id": who} if who else {}), **({"result": RESULT} if word == "done" else {}))
    found = Found()
    found.add(Run(folder))
    return found


def whole(step: str) -> tuple[str, ...]:
    effect = () if kind_of(step) == "look" else (f"effect {step}",)
    return f"begin {step}", *effect, f"end {step}", f"seen {step}"


WHOLE = tuple(note for step in STEPS for note in whole(step))


def test_a_run_without_a_death_has_nothing_again_and_nothing_wrong(tmp_path: Path) -> None:
    found = told(tmp_path, "started", "ready", *WHOLE, "done")
    assert (found.executions, found.again, found.twice.total(), found.wrong, found.on_ms) == (len(STEPS), 0, 0, [], [])


def test_executions_again_are_told_apart_by_how_far_the_first_had_come(tmp_path: Path) -> None:
    found = told(tmp_path, "started", "begin put:1", "started", *whole("put:1")[:3], "started", *WHOLE, "begin put:1", "done")
    assert (found.again, found.again_after_end, found.again_after_seen) == (3, 2, 1)
    assert len(found.on_ms) == 0, "a process without a `ready` is not timed"


def test_an_irreversible_effect_had_twice_is_counted_by_its_kind_and_an_idempotent_one_is_not(tmp_path: Path) -> None:
    found = told(tmp_path, *WHOLE, "effect letter:2", "effect put:2", "done")
    assert dict(found.twice) == {"letter": 1}


def test_a_run_that_was_killed_after_its_end_may_say_its_result_again(tmp_path: Path) -> None:
    assert told(tmp_path, *WHOLE, "done", "done").wrong == []


@pytest.mark.parametrize(
    ("notes", "what"),
    [
        (WHOLE, "its result is []"),
        ((*(n for n in WHOLE if n != "effect letter:1"), "done"), "never had, although the run says so: ['letter:1']"),
    ],
)
def test_a_run_without_its_result_or_with_an_effect_that_was_never_had_ends_wrongly(
    tmp_path: Path, notes: tuple[str, ...], what: str
) -> None:
    (wrong,) = told(tmp_path, *notes).wrong
    assert what in wrong


def test_a_plan_is_the_same_for_every_library_and_holds_a_death_at_a_letter() -> None:
    plans = [deaths.plan(7, run) for run in range(50)]
    assert plans == [deaths.plan(7, run) for run in range(50)]
    assert all(any(d.word == "effect" and d.who.startswith("letter") for d in plan) for plan in plans)
    assert {d.word for plan in plans for d in plan} == set(deaths.WORDS)


def test_ipyagent_keeps_its_promises_in_the_comparison_and_a_missing_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "NAMES", {runs.OWN: "ipyagent", "by_nothing": "Nothing"})
    found, versions = compare.compare(tmp_path, python=sys.executable, kills=12, seed=1)
    own = found[runs.OWN]
    assert own.deaths.total() >= 6
    assert (own.wrong, own.again_after_seen, own.twice.total()) == ([], 0, 0)
    assert len(own.on_ms) >= 6
    assert "NOT COMPARED: Nothing is missing" in compare.table(found, versions)
