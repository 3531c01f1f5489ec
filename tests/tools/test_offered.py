"""A tool that cannot work here is not offered, and the reason is told."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ipyagent_sessions.agent.tools.declare import declared, to_pydantic, tool
from ipyagent_sessions.agent.tools.offered import BUILT_IN, offered
from ipyagent_sessions.agent.tools.workbench import CellResult, Workbench
from ipyagent_sessions.errors import UsageError

EFFECTS = {
    "list_files": "none",
    "read_file": "none",
    "search_files": "none",
    "write_file": "idempotent",
    "edit_file": "irreversible",
    "query": "none",
    "recall": "none",
    "remember": "idempotent",
    "run_python": "irreversible",
    "run_shell": "irreversible",
}


async def run_cell(code: str) -> CellResult:
    return CellResult(code)


@tool(effect="none")
def mine(x: int) -> int:
    """Mine."""
    return x


def test_in_a_notebook_all_are_offered_each_with_its_effect(bench: Workbench) -> None:
    bench.run_cell = run_cell
    offer = offered(bench, [mine])
    assert {t.name: t.effect for t in offer.tools} == {**EFFECTS, "mine": "none"}
    assert offer.unusable == []
    for made in offer.tools:
        assert made.description
        assert declared(made.name, to_pydantic(made).metadata).effect == made.effect
        assert all("description" in field for field in made.schema.get("properties", {}).values()) or made is mine


def test_the_documentation_names_each_with_its_effect(bench: Workbench) -> None:
    page = (Path(__file__).parents[2] / "docs/tools.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+)[^|]* \| \**(yes|no)\** \|", page, re.MULTILINE)
    assert {name: effect for name, effect, _ in rows} == EFFECTS
    assert {name for name, _, confined in rows if confined == "no"} == {"run_python", "run_shell"}


def test_tools_with_an_effect_run_one_after_another(bench: Workbench) -> None:
    made = [to_pydantic(make(bench)) for make in BUILT_IN]
    assert {t.name for t in made if t.sequential} == {name for name, effect in EFFECTS.items() if effect != "none"}


def test_every_irreversible_tool_that_can_be_verified_is(bench: Workbench) -> None:
    assert [t.name for t in (make(bench) for make in BUILT_IN) if t.verify] == ["edit_file"]


def test_a_name_to_leave_out_that_is_none_is_refused_instead_of_offering_the_tool_that_was_meant(bench: Workbench) -> None:
    with pytest.raises(UsageError, match=r"tools\.without: there is no tool run_shel; did you mean run_shell\?"):
        offered(bench, [mine], {"mine", "run_shel"})


def test_without_a_kernel_the_rest_is_offered(bench: Workbench) -> None:
    offer = offered(bench)
    assert [name for name, _ in offer.unusable] == ["run_python"]
    assert "no notebook" in offer.unusable[0][1]


def test_without_a_store_nothing_is_kept_across_conversations(root: Path) -> None:
    offer = offered(Workbench(root, run_cell=run_cell))
    assert [name for name, _ in offer.unusable] == ["recall", "remember"]
    assert "no store" in offer.unusable[0][1]


def test_a_reason_that_has_gone_is_gone_the_next_time(root: Path) -> None:
    bench = Workbench(root / "later", run_cell=run_cell)
    assert [t.name for t in offered(bench).tools] == ["run_python"]
    (root / "later").mkdir()
    assert len(offered(bench).tools) == len(EFFECTS) - len({"recall", "remember"})


def test_what_the_config_leaves_out_is_left_out(bench: Workbench) -> None:
    offer = offered(bench, [mine], {"run_shell", "mine"})
    assert {"run_shell", "mine"}.isdisjoint(t.name for t in offer.tools)
    assert ("run_shell", "left out by the config") in offer.unusable
    assert ("mine", "left out by the config") in offer.unusable


def test_a_users_tool_takes_the_place_of_a_built_in_one(bench: Workbench) -> None:
    @tool(effect="irreversible", name="run_shell")
    def shell(command: str) -> str:
        return command

    offer = offered(bench, [shell])
    assert [t for t in offer.tools if t.name == "run_shell"] == [shell]
    assert ("run_shell", "your own tool of that name is used") in offer.unusable


def test_two_tools_of_one_name_and_a_tool_that_no_model_can_call_are_told_at_once(bench: Workbench) -> None:
    @tool(name="mine")
    def other(x: int) -> int:
        return x

    @tool
    def hold(it: threading.Event) -> str:
        return str(it)

    with pytest.raises(UsageError, match="two tools are named mine"):
        offered(bench, [mine, other])
    with pytest.raises(UsageError, match="hold cannot be offered"):
        offered(bench, [hold])


def test_asking_what_there_is_imports_nothing_slow() -> None:
    """Without tools of the user's, whose schemas have to be looked at."""
    code = (
        "import sys; from pathlib import Path\n"
        "from ipyagent_sessions.agent.tools.offered import offered\n"
        "from ipyagent_sessions.agent.tools.workbench import Workbench\n"
        "assert len(offered(Workbench(Path('.'))).tools) == 7\n"
        "print([m for m in ('pydantic_ai', 'duckdb', 'pyarrow', 'pandas', 'mcp', 'fastmcp') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
