"""`%%agent` in a real kernel: conversation, variables, tools of the notebook, approvals, stop, and a kernel that is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.kernel.notebook import DEADLINE_S, Notebook

from ipyagent_sessions.testing import wait_until

SCRIPT = """
- when: "twice"
  turns:
    - say: "Let me look."
      call: [{tool: double, args: {x: 21}}]
      usage: {input: 100, output: 20}
      cost: 0.001
    - expect: "42"
      say: "# Result\\n\\nIt is **42** <script>alert(1)</script>."
    - expect: "again"
      say: "Still 42."
- when: "python"
  turns:
    - call: [{tool: run_python, args: {code: "m = n * 2\\nprint('said')\\nm"}}]
    - expect: "said"
      say: "ran it"
- when: "wait"
  turns:
    - call: [{tool: run_shell, args: {command: "exec sleep 300"}}]
    - say: "waited"
- when: "slow"
  turns:
    - say: "one two three four five six seven eight nine ten"
      tokens_per_s: 1
- when: "keep"
  turns:
    - call: [{tool: remember, args: {namespace: preferences, key: units, value: "metric <b>units</b>"}}]
    - expect: "kept as notes/preferences units"
      say: "noted"
- when: "which units"
  turns:
    - call: [{tool: recall, args: {query: units}}]
    - expect: "metric <b>units</b>"
      say: "Metric."
- when: "secret"
  turns:
    - call: [{tool: run_python, args: {code: "import os; print(os.environ['CANARY_API_KEY'])"}}]
    - say: "told"
"""
CANARY = "canary-0123456789abcdef"
DOUBLE = """
from ipyagent import tool
@tool(effect="none")
def double(x: int) -> int:
    "Twice x."
    return 2 * x
n = 21
"""


@pytest.fixture
def nb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    (tmp_path / "play.yaml").write_text(SCRIPT)
    with Notebook(tmp_path) as made:
        assert made.run("%load_ext ipyagent").error is None
        assert made.run(DOUBLE).error is None
        yield made


def until(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, timeout=DEADLINE_S, what=what)


def sleepers(folder: Path) -> list[int]:
    """The living processes that a shell tool started in `folder`."""
    running = psutil.process_iter(["pid", "cmdline", "cwd"])
    return [p.pid for p in running if (p.info["cmdline"] or [])[-2:] == ["sleep", "300"] and p.info["cwd"] == str(folder)]


def test_a_conversation_goes_on_from_cell_to_cell_and_its_markdown_is_harmless(nb: Notebook) -> None:
    first = nb.run("%%agent --model scripted:play.yaml --out answer\nWhat is twice {n}?")
    assert first.error is None
    assert "scripted:play.yaml" in first.text, "a scripted model is named as one"
    assert "<strong>42</strong>" in first.html
    assert "<script>" not in first.html
    assert nb.run("print(answer)").text.startswith("# Result")
    assert nb.run("%%agent --model scripted:play.yaml\nagain {{please}}").text.endswith("Still 42.\n")
    said = nb.run("%agent sql select role, text from messages order by seq").text
    assert "What is twice 21?" in said
    assert "again {please}" in said
    assert nb.run("%agent sql select count(*) as sessions from sessions").text.split()[-3:] == ["1", "1", "row"]


def test_what_one_conversation_is_told_to_keep_the_next_one_finds(nb: Notebook) -> None:
    assert nb.run("%%agent --model scripted:play.yaml --session one --approve auto\nkeep metric").text.endswith("noted\n")
    assert nb.run("%%agent --model scripted:play.yaml --session two\nwhich units?").text.endswith("Metric.\n")
    listed = nb.run("%agent memory notes")
    assert "metric <b>units</b>" in listed.text
    assert "<b>units</b>" not in listed.html
    assert "remember" in nb.run("%agent tools").text


def test_what_cannot_run_is_refused_before_anything_starts(nb: Notebook) -> None:
    for cell, said in (
        ("%%agent --model scripted:play.yaml\n{nobody}", "{nobody}: there is no such variable"),
        ("%%agent --model openai:gpt-x\nhello", "needs a key: the environment variable OPENAI_API_KEY is not set"),
        ("%%agent --model scripted:gone.yaml\nhello", "gone.yaml"),
        ("%%agent --model scripted:play.yaml --schema City\nhello", "--schema City: there is no such variable"),
        ("%%agent --model scripted:play.yaml --schema n\nhello", "--schema n: not a type that an answer can have"),
        ("%%agent --model scripted:play.yaml --budget euro=1\nhello", "--budget euro=1: not a limit"),
    ):
        ran = nb.run(cell)
        assert ran.error is not None, cell
        assert said in ran.message, ran.message
        assert len(ran.traceback) == 1
    assert "there is no store" in nb.run("%agent ls").text, "nothing was made"


def test_python_of_an_agent_runs_in_the_notebook_once_a_person_allows_it(nb: Notebook) -> None:
    asked = nb.run("%%agent --model scripted:play.yaml\npython please", headless=True)
    assert asked.error == "TaskNotCompleted"
    assert "May run_python be called?" in asked.message
    assert nb.run("m").error == "NameError", "nothing ran yet"
    assert "approved" in nb.run("%agent approve").text
    assert nb.run("%agent resume @last", headless=True).text.endswith("ran it\n")
    assert nb.run("print(m)").text == "42\n"


def test_an_error_of_the_agents_code_is_told_to_the_agent_and_not_shown_as_one_of_the_cell(nb: Notebook) -> None:
    script = '- call: [{tool: run_python, args: {code: "x = 1\\n1/0"}}]\n- expect: ZeroDivisionError\n  say: noticed\n'
    (nb.folder / "bad.yaml").write_text(script)
    ran = nb.run("%%agent --model scripted:bad.yaml --approve auto\ngo")
    assert ran.error is None
    assert ran.text.endswith("noticed\n")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("exit()", "the notebook is not ended from here"),
        ("input('name? ')", "nobody types anything in here"),
        ("import getpass\ngetpass.getpass()", "nobody types anything in here"),
        ("import asyncio\nawait asyncio.sleep(0, n + 21)", "42"),
        ("import asyncio\nawait asyncio.sleep(0)\n1/0", "ZeroDivisionError.*line 3"),
    ],
)
@pytest.mark.parametrize("background", ["", "--bg "])
def test_code_of_an_agent_neither_ends_nor_holds_up_the_kernel(nb: Notebook, code: str, told: str, background: str) -> None:
    called = {"call": [{"tool": "run_python", "args": {"code": code}}]}
    (nb.folder / "odd.json").write_text(json.dumps([called, {"expect": {"regex": told}, "say": "noticed"}]))
    ran = nb.run(f"%%agent --model scripted:odd.json --approve auto --out h {background}\ngo")
    assert ran.error is None, ran.message
    assert nb.run("await h if 'task' in repr(h) else h").text == "'noticed'\n"
    assert nb.run("print(n)").text == "21\n"
    assert nb.run("await asyncio.sleep(0, 1)" if "asyncio" in code else "1").text == "1\n", (
        "the notebook's own await is as it was"
    )


def test_ctrl_c_while_code_of_an_agent_runs_ends_the_code_and_pauses_the_task(nb: Notebook) -> None:
    code = "import time\nfrom pathlib import Path\nPath('runs').touch()\nfor i in range(600): time.sleep(0.1)"
    called = {"call": [{"tool": "run_python", "args": {"code": code}}]}
    (nb.folder / "long.json").write_text(json.dumps([called, {"expect": "KeyboardInterrupt", "say": "went on"}]))
    request = nb.send("%%agent --model scripted:long.json --approve auto\ngo")
    until((nb.folder / "runs").exists, "the code to run")
    nb.interrupt()
    ran = nb.receive(request)
    assert (ran.error, "is interrupted" in ran.message) == ("TaskNotCompleted", True), ran.message
    assert nb.run("%agent resume @last").text.endswith("went on\n")


def test_a_secret_of_the_environment_is_in_no_stored_byte_and_in_no_output(nb: Notebook) -> None:
    ran = nb.run("%%agent --model scripted:play.yaml --approve auto\nsecret please")
    assert ran.error is None
    assert CANARY not in ran.text + ran.html
    stored = [path for path in (nb.folder / "store").rglob("*") if path.is_file()]
    assert stored
    assert not [path for path in stored if CANARY.encode() in path.read_bytes()]
    assert "<secret CANARY_API_KEY>" in nb.run("%agent log @last").text


def test_a_stop_while_the_answer_comes_keeps_what_came(nb: Notebook) -> None:
    request = nb.send("%%agent --model scripted:play.yaml\nslow please")
    store = nb.folder / "store"
    until(lambda: any("one two" in path.read_text() for path in store.rglob("live.json")), "the first words")
    nb.interrupt()
    until(lambda: "ControlRequested" in terminal(nb, "log", "@last"), "the pause to be logged")
    nb.interrupt()
    ran = nb.receive(request)
    assert ran.error == "TaskNotCompleted"
    assert "interrupted" in ran.message
    partial = nb.run("%agent sql select text from messages where payload->>'$.partial' = 'true'").text
    assert "one two" in partial


def terminal(nb: Notebook, *words: str) -> str:
    """What the terminal command says, from outside while the kernel is busy."""
    done = subprocess.run(
        [sys.executable, "-m", "ipyagent_sessions.cli", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "IPYAGENT_STORE": str(nb.folder / "store")},
        check=False,
    )
    return done.stdout


def test_a_killed_kernel_leaves_no_process_and_its_call_is_asked_about(nb: Notebook) -> None:
    nb.send("%%agent --model scripted:play.yaml --approve auto\nwait please")
    until(lambda: bool(sleepers(nb.folder)), "the shell command")
    nb.kill()
    with Notebook(nb.folder) as other:
        assert "found unfinished work" in other.run("%load_ext ipyagent").text
        asked = other.run("%agent resume @last", headless=True)
        assert "run_shell: 1 call started and left no result" in asked.message
        assert sleepers(nb.folder) == [], "what the killed kernel left running was ended"
        assert "run_again" in other.run("%agent approve @last --choice run_again").text
        request = other.send("%agent resume @last")
        until(lambda: bool(sleepers(nb.folder)), "the command to run again")
        assert "cancelled" in terminal(nb, "cancel", "@last")
        assert "cancelled" in other.receive(request).message
        assert sleepers(nb.folder) == [], "the command was ended with the task"


def test_an_agent_of_ones_own_is_durable_with_its_own_tools_and_output(nb: Notebook) -> None:
    defined = nb.run(
        """
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
class City(BaseModel):
    name: str
async def played(messages, info):
    if any(isinstance(m, ModelResponse) for m in messages):
        yield {0: DeltaToolCall("final_result", '{"name": "Paris"}', tool_call_id="b")}
    else:
        yield {0: DeltaToolCall("look", '{"q": "x"}', tool_call_id="a")}
guide = Agent(FunctionModel(stream_function=played), output_type=City)
@guide.tool_plain
def look(q: str) -> str:
    return "found " + q
"""
    )
    assert defined.error is None, defined.message
    assert nb.run("%agent run guide 'which city?' --out city").error is None
    assert nb.run("city").text == "City(name='Paris')\n"
    assert "look" in nb.run("%agent sql select tool, state from tool_calls").text
    nb.run("from ipyagent import workflow\n@workflow\nasync def w(ctx): ...")
    assert "is no agent" in nb.run("%agent run w --budget usd=1").message


def test_a_budget_stops_before_the_next_request_and_is_extended(nb: Notebook) -> None:
    stopped = nb.run("%%agent --model scripted:play.yaml --budget steps=1\nwhat is twice 21?")
    assert "suspended (step_cap)" in stopped.message
    assert "used 1 steps of 1 steps" in stopped.message
    went_on = nb.run("%agent resume @last --budget steps=+1")
    assert went_on.error is None
    assert "42" in went_on.text
