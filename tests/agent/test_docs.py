"""The examples of the documents are read as a user's files would be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ipyagent_sessions.agent.models import script
from ipyagent_sessions.agent.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    found = re.findall(r"^```yaml\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found
    return found


def test_the_settings_of_the_page_are_read_and_everything_in_them_is_known(tmp_path: Path) -> None:
    (text,) = blocks("models.md")
    (tmp_path / "ipyagent.yaml").write_text(text)
    (tmp_path / "empty.yaml").write_text("")
    settings = Settings.load(tmp_path, {"IPYAGENT_CONFIG": str(tmp_path / "empty.yaml")})
    assert settings.models["work"].timeout_s == 120
    assert settings.budget.task.tokens == 200_000
    assert settings.mcp["files"].effects["read_file"] == "none"
    assert settings.permissions.answer("run_shell", "none") == "never"


@pytest.mark.parametrize("number", range(3))
def test_the_scripts_of_the_page_are_read(number: int, tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text(blocks("agents-offline.md")[number])
    assert all(conversation.turns for conversation in script.load(tmp_path / "demo.yaml"))
