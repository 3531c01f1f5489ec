"""The campaign can see what it looks for: each kind of wrong, made on purpose in a run that was right, is reported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kill import looks
from tests.kill.bench import Bench
from tests.kill.looks import Reference
from tests.kill.witness import Witness

from ipyagent_sessions.session import Session

pytestmark = pytest.mark.timeout(120)


def executed_again(session: Session, witness: Witness) -> None:
    witness.note("begin", id="put:0", attempt=2)


def effect_repeated(session: Session, witness: Witness) -> None:
    witness.note("effect", id="charge:0")


def never_logged(session: Session, witness: Witness) -> None:
    witness.note("acked", session=session.id, events=[[session.last_seq() + 1, "00000000", "ActivityCompleted", "1/put:0"]])


def logged_otherwise(session: Session, witness: Witness) -> None:
    witness.note("acked", session=session.id, events=[[3, "00000000", "TaskStarted", None]])


def segment_twice(session: Session, witness: Witness) -> None:
    first = session.layout.segments()[0]
    shutil.copy(first.path, session.layout.segment(first.first, first.last, first.epoch + 1))


def segment_missing(session: Session, witness: Witness) -> None:
    session.layout.segments()[0].path.unlink()


def request_forgotten(session: Session, witness: Witness) -> None:
    witness.note("asked", control="nobody-logged-this")


def value_changed(session: Session, witness: Witness) -> None:
    witness.note("value", value="another")


def effect_missing(session: Session, witness: Witness) -> None:
    path = Path(witness.path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(x for x in lines if not ('"effect"' in x and '"publish:0"' in x)), encoding="utf-8")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (executed_again, "put:0 was completed and acknowledged, and was executed again"),
        (effect_repeated, "the irreversible effect of charge:0 was had 2 times"),
        (never_logged, "acknowledged event lost"),
        (logged_otherwise, "acknowledged event lost: 3 TaskStarted"),
        (segment_twice, "plain pyarrow reads events twice"),
        (segment_missing, "missing"),
        (request_forgotten, "request nobody-logged-this was accepted and is not in the log"),
        (value_changed, "a recorded value was another one after a restart"),
        (effect_missing, "2/publish:0 is recorded and its effect was never had"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_each_kind_of_wrong_is_reported(
    bench: Bench, reference: Reference, harm: Callable[[Session, Witness], None], words: str
) -> None:
    bench.run(headless=True)
    bench.finish()
    assert looks.at_end(bench.store, bench.witness, "sync", reference) == []

    harm(bench.session(), bench.witness)

    try:
        found = looks.at_end(bench.store, bench.witness, "sync", reference)
    except looks.UNREADABLE as error:
        found = [str(error)]
    assert any(words in w for w in found), found
