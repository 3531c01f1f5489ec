"""A person's mistake is told in one line, with what is wrong, where, and what to do next; never by a traceback."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal
from tests.cli.test_cli import of_notebook

from ipyagent_sessions.commands import parser
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.events import payload_of
from ipyagent_sessions.store import Store

MANY = "9" * 5000


@pytest.fixture
def task(terminal: Terminal) -> str:
    """The id of a session whose task waits for an answer."""
    terminal("run", "flows:audit")
    (listed,) = Store().sessions()
    return listed.session_id


@pytest.fixture
def modules(folder: Path) -> Iterator[Path]:
    """A folder whose modules are forgotten at the end."""
    known = set(sys.modules)
    yield folder
    for name in set(sys.modules) - known:
        sys.modules.pop(name)


@pytest.mark.parametrize("target", [":x", ".x:y", "..:y", "flows:", ":"])
def test_what_is_no_name_of_a_workflow_is_refused(terminal: Terminal, target: str) -> None:
    said = terminal("run", target)
    wanted = f"ipyagent: {target!r} names no workflow; module:name, from this folder or an installed package\n"
    assert said == (2, "", wanted)


RAISING = {
    "def x(:\n": "line 1: SyntaxError: invalid syntax",
    "y = 1\nx = y / 0\n": "line 2: ZeroDivisionError: division by zero",
    "import json\njson.loads('')\n": "line 2: JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    "import nosuchmodule\n": "line 1: ModuleNotFoundError: No module named 'nosuchmodule'",
    "import sys\nsys.exit('no')\n": "line 2: SystemExit: no",
    "raise ValueError\n": "line 1: ValueError",
    "import asyncio\nraise asyncio.CancelledError('gone')\n": "line 2: CancelledError: gone",
    "class E(Exception):\n    def __str__(self): raise KeyError\nraise E\n": "line 3: E: its text cannot be made: KeyError",
}


@pytest.mark.parametrize("source", RAISING)
def test_a_module_that_cannot_be_run_is_named_with_file_line_and_error(terminal: Terminal, modules: Path, source: str) -> None:
    (modules / "broken.py").write_text(source)
    said = terminal("run", "broken:flow")
    wanted = f"ipyagent: broken:flow cannot be imported: {modules / 'broken.py'} {RAISING[source]}; mend it there\n"
    assert said == (2, "", wanted)


def test_a_module_that_broke_since_is_told_to_who_goes_on(terminal: Terminal, modules: Path, task: str) -> None:
    sys.modules.pop("flows")
    (modules / "flows.py").write_text("async def audit(:\n")
    for words in (["resume", task], ["rerun", task, "--yes"]):
        said = terminal(*words)
        assert (said.status, said.err.count("\n")) == (2, 1)
        assert f"{modules / 'flows.py'} line 1: SyntaxError" in said.err


NO_NOTEBOOK = {
    "{": "is not a notebook: Input data was truncated",
    "[]": "is not a notebook: Expected `object`, got `array`",
    '{"cells": [7]}': "is not a notebook: Expected `object`, got `int` - at `$.cells[0]`",
}


@pytest.mark.parametrize("body", NO_NOTEBOOK)
def test_a_notebook_that_is_none_is_named(terminal: Terminal, folder: Path, body: str) -> None:
    path, session = of_notebook(folder, "flow_of_no_notebook")
    path.write_text(body)
    said = terminal("resume", session, "--setup-cells")
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert f"{path} {NO_NOTEBOOK[body]}" in said.err


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("x = 1\nx / 0", "<n.ipynb agent-setup 1> line 2: ZeroDivisionError: division by zero; mend the cell"),
        ("%time x", "<n.ipynb agent-setup 1> is not plain Python: invalid syntax (line 1); leave magics out of it"),
        ("raise SystemExit", "<n.ipynb agent-setup 1> line 1: SystemExit; mend the cell"),
    ],
)
def test_a_tagged_cell_that_raises_is_named_with_its_line(terminal: Terminal, folder: Path, source: str, told: str) -> None:
    path, session = of_notebook(folder, "n")
    cell = {"cell_type": "code", "metadata": {"tags": ["agent-setup"]}, "source": source}
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown"}, cell]}))
    said = terminal("resume", session, "--setup-cells")
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert told in said.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("state --at ²", "has no checkpoint '²'; write an event's seq"),
        (f"state --at {MANY}", f"has no event {MANY[:16]}...; it ends at"),
        (f"fork --at seq:{MANY}", f"has no event {MANY[:16]}...; it ends at"),
        ("replay --to 0", "has no event 0; it has events 1 to"),
        ("log --last -5", "argument --last: '-5' is not a whole number from 1"),
        (f"log --last {MANY}", "is not a whole number from 1 with at most 9 digits; usage: ipyagent log"),
        ("replay --last 0", "argument --last: '0' is not a whole number from 1"),
        ("rerun --yes --n ²", "argument --n: '²' is not a whole number from 1"),
        ("resume --recover auto:²", "--recover auto:²: not known; ask, or auto:N"),
        (f"resume --recover auto:{MANY}", "not known; ask, or auto:N"),
        (f"resume --budget usd={MANY}", "not an amount; a number, such as"),
        ("resume --budget time=soon", "--budget time: 'soon' is not a duration; write it as"),
        (f"run flows:audit --n {MANY}", "is no int"),
        (f"approve --result {'[' * 100_000}", "--result is not JSON"),
        (f"approve --arguments {'[' * 100_000}", "--arguments: "),
    ],
)
def test_a_number_that_is_none_is_told_in_one_line(terminal: Terminal, task: str, words: str, told: str) -> None:
    said = terminal(*words.split())
    assert said.status in (1, 2)
    assert said.err.startswith("ipyagent: ")
    assert (told in said.err, said.err.count("\n")) == (True, 1), said.err[-300:]


def test_words_that_are_no_text_are_cleaned_on_their_way_in(terminal: Terminal, task: str) -> None:
    for words in (
        ["checkpoint", "here\udcff"],
        ["deny", "--reason", "no\udcff"],
        ["rename", task, "mine\udcff"],
        ["fork", "mine\udcff", "--direction", "there\udcff"],
        ["cancel", task, "--reason", "over\udcff"],
        ["sql", "select 'one\udcff'"],
        ["log", task, "--type", "\udcff"],
    ):
        said = terminal(*words)
        assert (said.status, said.err) == (0, ""), words
    asked = [payload_of(e)["args"] for e in Store().session(task).events() if e.event_type == "ControlRequested"]
    assert [a.get("label") or a.get("reason") or a.get("title") for a in asked] == ["here�", "no�", "mine�", "over�"]


@pytest.mark.parametrize("words", [["--choice", "\udcff"], ["--arguments", r'{"a": "\ud800"}'], ["--result", r'"\ud800"']])
def test_an_answer_that_is_no_text_is_refused_or_cleaned(terminal: Terminal, task: str, words: list[str]) -> None:
    said = terminal("approve", *words)
    assert said.err.count("\n") <= 1
    assert list(Store().session(task).layout.inbox.iterdir()) == []


def test_a_user_s_name_that_is_no_text_is_no_reason_not_to_work(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "me\udcff")
    assert terminal("run", "flows:audit").status == 1
    assert terminal("deny").status == 0


@pytest.mark.parametrize("line", ["delete", "rename x", "checkpoint", "import", "log --last x", "fork --at"])
def test_the_usage_that_a_magic_tells_is_whole(line: str) -> None:
    with pytest.raises(UsageError) as raised:
        parser.parse("%agent", line.split())
    command = line.split()[0]
    assert raised.value.message.startswith(f"%agent {command}: ")
    assert raised.value.hint.startswith(f"usage: %agent {command} ")
    assert "{" not in raised.value.hint


def test_a_store_that_is_none_is_told_with_what_to_do(terminal: Terminal, folder: Path) -> None:
    assert terminal("--store") == (2, "", "ipyagent: --store needs a folder; ipyagent --store FOLDER COMMAND ...\n")
    (folder / "file").write_text("")
    said = terminal("--store", "file/s", "run", "flows:audit")
    assert said.status == 1
    assert said.err.endswith(
        "Not a directory; a file stands where a folder has to be: name another store, or move that file\n"
    )


def test_a_folder_where_a_file_has_to_be_is_told_with_what_to_do(terminal: Terminal, task: str) -> None:
    header = Store().session(task).layout.header
    header.unlink()
    header.mkdir()
    said = terminal("log", task)
    assert said.status == 1
    assert "session.json: Is a directory; a folder stands where a file has to be: move it away" in said.err


def test_a_task_of_a_notebook_that_has_ended_is_told_so(terminal: Terminal, folder: Path) -> None:
    _, session = of_notebook(folder, "flow_that_ends")
    terminal("cancel", session)
    for words in (["resume", session], ["resume", session, "--setup-cells"]):
        said = terminal(*words)
        assert said.status == 1
        assert "is cancelled since" in said.err
        assert f"ended tasks never change; run it again as a new task: ipyagent rerun {session}" in said.err
    assert not (folder / "ran").exists()


def test_a_new_title_is_said_and_none_is_refused(terminal: Terminal, task: str) -> None:
    assert terminal("rename", task, "the new one").out == f"{task} is called 'the new one' now\n"
    assert json.loads(terminal("rename", task, "x", "--json").out) == {"session_id": task, "title": "x"}
    for none in ("", "  "):
        said = terminal("rename", task, none)
        assert (said.status, said.err) == (2, f"ipyagent: a session needs a title; ipyagent rename {task} TITLE\n")
