"""A workspace, a workbench over it, and a list of what was reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipyagent_sessions.agent.tools.workbench import Workbench
from ipyagent_sessions.memory.notes import Notes
from ipyagent_sessions.store import Store


class Told(list[Any]):
    """What a workbench reported, in order."""

    def of(self, kind: type[Any]) -> list[Any]:
        return [item for item in self if isinstance(item, kind)]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def bench(root: Path, told: Told, store: Store) -> Workbench:
    notes = Notes(store.memory, by="m-test", scrub=lambda text: text.replace("hunter2", "<secret>"))
    return Workbench(root, report=told.append, notes=notes, mark="m-test")
