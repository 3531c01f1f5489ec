"""Two kernels want one session: one gets it, the other says who has it."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kill import looks
from tests.kill.bench import WAIT_S, Bench
from tests.kill.kernels import Kernel
from tests.kill.looks import Reference

from ipyagent_sessions.testing import wait_until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kernel, Kernel]]:
    folder = tmp_path_factory.mktemp("kernels")
    with contextlib.closing(Kernel(folder / "a")) as one, contextlib.closing(Kernel(folder / "b")) as other:
        one.ready()
        other.ready()
        yield one, other


def _as_many(notes: Callable[[], list[Any]], wanted: int) -> bool:
    return len(notes()) == wanted


def refusals(bench: Bench) -> list[str]:
    return [how for how in bench.said() if how.startswith("LeaseHeld")]


def test_a_second_kernel_is_told_which_kernel_has_the_session(
    bench: Bench, kernels: tuple[Kernel, Kernel], reference: Reference
) -> None:
    one, other = kernels
    one.run(bench.spec())
    bench.until_asked()
    session = bench.session()

    other.run(bench.spec(role="resume", session=session.id))
    assert other.wait(WAIT_S) == 0

    (refusal,) = refusals(bench)
    assert f"held by kernel {one.kernel_id[:8]} (pid {one.pid} on " in refusal
    bench.answer()
    wait_until(
        lambda: bench.waiting() or bench.session().state().system_state.ended_at, timeout=WAIT_S, what="the next question"
    )
    bench.answer()
    assert one.wait(WAIT_S) == 0
    assert bench.said()[-1].startswith("completed")
    assert looks.at_end(bench.store, bench.witness, "sync", reference) == []


def test_of_two_kernels_that_resume_at_once_one_wins_and_the_other_names_it(
    bench: Bench, kernels: tuple[Kernel, Kernel], tmp_path: Path
) -> None:
    bench.run(headless=True)
    gate = tmp_path / "gate"
    for kernel in kernels:
        kernel.run(bench.spec(role="resume", session=bench.session().id, gate=str(gate)))
    wait_until(lambda: len(bench.witness.notes("opened")) == 3, timeout=WAIT_S, what="both kernels are ready")

    gate.touch()

    wait_until(lambda: refusals(bench), timeout=WAIT_S, what="one of them is refused")
    winners = [n["pid"] for n in bench.witness.notes("holds")[1:]]
    assert len(winners) == 1
    winner = next(k for k in kernels if k.pid == winners[0])
    assert f"held by kernel {winner.kernel_id[:8]} (pid {winner.pid} on " in refusals(bench)[0]


def test_of_many_processes_that_resume_at_once_no_two_hold_it_together(bench: Bench, tmp_path: Path) -> None:
    """Those that come late enough may have it one after another; each is either a holder or told who is."""
    bench.run(headless=True)
    session = bench.session()
    for number in range(4):
        gate, before = tmp_path / f"gate-{number}", bench.witness.notes()
        children = [bench.start(role="resume", session=session.id, gate=str(gate), headless=True) for _ in range(4)]
        opened = functools.partial(bench.witness.notes, "opened")
        ready = 5 + 4 * number
        wait_until(functools.partial(_as_many, opened, ready), timeout=WAIT_S, what="all are ready")
        gate.touch()
        assert [c.wait(WAIT_S) for c in children] == [0] * 4

        notes = bench.witness.notes()[len(before) :]
        holders = [n["pid"] for n in notes if n["w"] == "holds"]
        refused = [n for n in notes if n["w"] == "ended" and n["how"].startswith("LeaseHeld")]
        assert holders
        assert sorted([*holders, *(n["pid"] for n in refused)]) == sorted(c.pid for c in children)
        for note in refused:
            assert any(f"(pid {pid} on " in note["how"] for pid in holders), note["how"]
        turns = [pid for pid, _ in itertools.groupby(n["pid"] for n in notes if n["w"] == "acked")]
        assert len(turns) == len(set(turns)), "two held it together"
        assert looks.not_contiguous(session) == []
