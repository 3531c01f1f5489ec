"""What others rely on: the written contract, the error table, and how the extension is found and imported."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ipyagent_lab
from ipyagent_lab import typescript
from ipyagent_lab.app import ROUTES
from ipyagent_sessions import errors as engine
from ipyagent_sessions import place
from ipyagent_sessions.events import Event
from ipyagent_sessions.serving import problems
from ipyagent_sessions.serving.shapes import ARGS, ControlBody, EventLine

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "server-api.md"


def test_the_types_in_the_docs_are_those_of_the_code() -> None:
    page = PAGE.read_text("utf-8")
    assert page == typescript.renewed(page), "run: python -m ipyagent_lab.typescript docs/server-api.md"


def test_the_docs_name_every_route_and_every_row_of_the_error_table() -> None:
    page = PAGE.read_text("utf-8")
    for pattern, _ in ROUTES:
        path = re.sub(r"\(\?P<session_id>[^)]*\)", "{id}", pattern)
        path = re.sub(r"\(\?P<name>[^)]*\)", "{sha256}", path).removeprefix("/ipyagent/api")
        assert f"`{path}`" in page or f" {path}`" in page or f" {path}?" in page, path
    for kind, status in problems.STATUSES.items():
        assert re.search(rf"^\| {kind.__name__} \| {status.value} \|", page, re.MULTILINE), kind


def test_an_id_looks_the_same_to_a_page_as_to_the_engine() -> None:
    guards = (ROOT / "labextension" / "src" / "guards.ts").read_text("utf-8")
    assert re.findall(r"SESSION_ID = /\^(.*)\$/", guards) == [place.ID]


def test_every_error_of_the_engine_has_a_row_or_a_base_that_has_one() -> None:
    kinds = [k for k in vars(engine).values() if isinstance(k, type) and issubclass(k, engine.IpyagentError)]
    assert len(kinds) > 10
    for kind in kinds:
        error = kind.__new__(kind)
        error.message, error.hint = "what", "what to do"
        problem = problems.problem_of(error)
        assert (problem.error, problem.message, problem.hint) == (kind.__name__, "what", "what to do")
        assert 400 <= problem.status < 600


def test_of_an_unknown_error_a_page_learns_only_that_it_happened() -> None:
    problem = problems.problem_of(RuntimeError("/home/anna/.ssh/id_rsa is not readable by sqlite3"))
    assert problem.status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert not re.search("anna|ssh|sqlite|Runtime", str(problem))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_refuses_is_told_as_such_without_a_path(code: int) -> None:
    problem = problems.problem_of(OSError(code, "what", "/home/anna/secret"))
    assert (problem.error, problem.status) == ("PersistenceError", 507)
    assert "anna" not in problem.message


def test_a_message_shows_the_store_by_a_short_path(tmp_path: Path) -> None:
    home = Path.home() / ".local" / "share" / "jupyter" / "ipyagent"
    problem = problems.problem_of(engine.NotFound(f"there is no session x in {home}"), home)
    assert problem.message == "there is no session x in ~/.local/share/jupyter/ipyagent"
    assert len(problems.short_path(Path("/" + "x" * 300))) == 60
    assert problems.short_path(Path.home()) == "~"
    assert problems.short_path(Path(f"{Path.home()}x")).startswith(str(Path.home())[:10])


def test_an_event_line_has_the_fields_of_an_event_first() -> None:
    assert EventLine.__struct_fields__[: len(Event.__struct_fields__)] == Event.__struct_fields__


def test_every_action_has_its_arguments() -> None:
    [actions] = [f.type for f in msgspec.structs.fields(ControlBody) if f.name == "action"]
    assert set(ARGS) == set(actions.__args__)


def test_importing_the_package_and_its_extension_loads_neither_duckdb_nor_pyarrow() -> None:
    def loaded(statement: str) -> set[str]:
        code = f"import sys\n{statement}\nprint(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        return set(done.stdout.split())

    heavy = {"duckdb", "pyarrow", "watchfiles", "pydantic_ai", "psutil", "filelock"}
    assert not loaded("import ipyagent_lab") & {*heavy, "jupyter_server", "tornado", "msgspec", "zstandard", "asyncio"}
    assert not loaded("import ipyagent_lab; ipyagent_lab._jupyter_server_extension_points()") & (
        heavy - {"psutil", "watchfiles"}
    )


def test_jupyter_finds_the_server_part_and_the_front_end_only_where_it_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jupyter: Any = ipyagent_lab
    [point] = jupyter._jupyter_server_extension_points()
    assert (point["module"], point["app"].name) == ("ipyagent_lab", "ipyagent_lab")
    monkeypatch.setattr(ipyagent_lab, "_BUNDLE", tmp_path / "labextension")
    assert jupyter._jupyter_labextension_paths() == []
    (tmp_path / "labextension").mkdir()
    (tmp_path / "labextension" / "package.json").write_text("{}")
    assert jupyter._jupyter_labextension_paths() == [{"src": "labextension", "dest": "@ipyagent/lab"}]


def test_the_configuration_that_is_installed_enables_the_extension() -> None:
    path = ROOT / "labextension" / "jupyter-config" / "server-config" / "ipyagent_lab.json"
    assert json.loads(path.read_text()) == {"ServerApp": {"jpserver_extensions": {"ipyagent_lab": True}}}
