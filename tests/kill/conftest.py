"""One nursery for the tests of this folder, and the campaign's table at the end of the output whatever is captured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kill.bench import Bench
from tests.kill.campaign import reference_of
from tests.kill.looks import Reference
from tests.kill.nursery import Nursery

TABLE: pytest.StashKey[str] = pytest.StashKey()


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with contextlib.closing(Nursery(tmp_path_factory.mktemp("nursery"))) as made:
        yield made


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Reference:
    """What a run of the bench's workload that nobody disturbs comes to."""
    return reference_of(tmp_path_factory.mktemp("reference"), nursery, 1)[0]


@pytest.fixture
def bench(tmp_path: Path, nursery: Nursery) -> Iterator[Bench]:
    """A store of its own; no child outlives the test."""
    yield Bench(tmp_path, nursery)
    left = nursery.alive
    nursery.end_all()
    assert not left, f"children were left: {left}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    table = config.stash.get(TABLE, "")
    if table:
        terminalreporter.section("kill campaign")
        terminalreporter.write_line(table)
