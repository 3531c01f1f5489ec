"""A workspace, a workbench over it, and a list of what was reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipyagent_sessions.agent.tools.workbench import Workbench


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
def bench(root: Path, told: Told) -> Workbench:
    return Workbench(root, report=told.append, mark="m-test")
