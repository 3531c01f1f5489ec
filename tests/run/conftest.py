"""A witness, gates and an engine for each test; what a test left running is ended after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.run.harness import Clock, Engine, Gate, Witness

from ipyagent_sessions.run import resources
from ipyagent_sessions.store import Store


@pytest.fixture(autouse=True)
def _plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough memory and disk: what others do to the machine meanwhile raises no alarm in a test."""
    monkeypatch.setattr(resources, "room", lambda folder: resources.Room(1, 10, 10**12, 10**12))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "witness")


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


@pytest.fixture
def engine(store: Store, gate: Gate) -> Iterator[Engine]:
    made = Engine(store)
    yield made
    gate.open()
    made.close()
