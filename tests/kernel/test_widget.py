"""The widget of a task in a real kernel, talked to over its comm as a front end does."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kernel.notebook import DEADLINE_S, DEFINITIONS, Notebook
from tests.kernel.test_controls import until_state

from ipyagent.task_widget import BUILT

pytestmark = pytest.mark.skipif(not (BUILT / "task.js").is_file(), reason="the front end was not built in this checkout")

SENDING = """
from ipyagent import tool
@tool(effect="irreversible")
def send(to: str, text: str) -> str:
    "Send a message."
    mark(f"send {to} {text}")
    return "sent"
"""
SCRIPT = """
- when: "message"
  turns:
    - call: [{tool: send, args: {to: all, text: hello}}]
    - say: "done"
"""


class Front:
    """What a front end is to one widget: it hears everything on iopub, and speaks over the comm that the kernel has opened."""

    def __init__(self, notebook: Notebook, code: str) -> None:
        self.notebook = notebook
        self.heard: list[dict[str, Any]] = []
        self.answers: dict[str, tuple[int, Any]] = {}
        self.state: dict[str, Any] = {}
        self.bundle: dict[str, Any] = {}
        self.error = ""
        self._comm = self._idle = self._subshell = ""
        self._numbers = itertools.count()
        request = notebook.send(code)
        self.until(lambda: self._idle == request, "the cell has run")
        assert not self.error, self.error
        assert self._comm, "no widget was made"

    def say(self, **content: Any) -> None:
        """A custom message, as `model.send` makes it."""
        client = self.notebook.client
        message = client.session.msg("comm_msg", {"comm_id": self._comm, "data": {"method": "custom", "content": content}})
        if self._subshell:
            message["header"]["subshell_id"] = self._subshell
        client.shell_channel.send(message)

    def use_subshell(self) -> None:
        """Speak through a subshell from now on, as JupyterLab does where the kernel has them."""
        client = self.notebook.client
        client.control_channel.send(client.session.msg("create_subshell_request", {}))
        self._subshell = client.get_control_msg(timeout=DEADLINE_S)["content"]["subshell_id"]

    def ask(self, method: str, path: str, **body: Any) -> tuple[int, Any]:
        """The status and the body of an answer."""
        nr = f"test-{next(self._numbers)}"
        self.say(type="ask", nr=nr, method=method, path=path, body=json.dumps(body) if body else "")
        self.until(lambda: nr in self.answers, f"{path} is answered")
        return self.answers[nr]

    @property
    def card(self) -> dict[str, Any]:
        """The newest card that came."""
        cards = [m["shown"]["card"] for m in self.heard if m["type"] == "card"]
        return cards[-1] if cards else {"state": "", "done": 0, "asks": []}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Listen until it holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            left = deadline - time.monotonic()
            assert left > 0, f"not in time: {what}; heard {self.heard[-3:]}"
            self._take(self.notebook.client.get_iopub_msg(timeout=left))

    def _take(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "comm_open" and content["data"]["state"].get("_anywidget_id"):
            self._comm, self.state = content["comm_id"], content["data"]["state"]
        elif kind in ("display_data", "execute_result"):
            self.bundle = content["data"]
        elif kind == "error":
            self.error = content["evalue"]
        elif kind == "status" and content["execution_state"] == "idle":
            self._idle = message["parent_header"].get("msg_id", "")
        elif kind == "comm_msg" and content["comm_id"] == self._comm and content["data"].get("method") == "custom":
            said = content["data"]["content"]
            if said["type"] == "live":
                self.heard.append(said["message"])
            elif said["type"] == "answer":
                body = bytes(message["buffers"][0])
                self.answers[said["nr"]] = (said["status"], json.loads(body) if body[:1] in b"{[" else body)


def test_a_card_comes_over_the_comm_and_a_pause_through_it_is_obeyed(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        notebook.run("h = %agent run audit --n 5 --bg")
        notebook.until_marked("begin 2")
        front = Front(notebook, "w = h.widget()\nw")
        assert "application/vnd.jupyter.widget-view+json" in front.bundle
        assert "audit" in front.bundle["text/html"]
        assert "export" in front.state["_esm"]
        front.say(type="wanted")
        front.until(lambda: any(m["type"] == "hello" for m in front.heard), "a hello")
        front.until(lambda: front.card["state"] == "running", "a running card")
        session, task = front.state["session_id"], front.state["task_id"]
        assert (front.card["session_id"], front.card["task_id"]) == (session, task)
        pause = {"action": "pause", "task_id": task, "expects": ["running"], "args": {}}
        status, outcome = front.ask("POST", f"sessions/{session}/control", **pause)
        assert (status, outcome["outcome"]) == (200, "accepted")
        notebook.open_gate()
        front.until(lambda: front.card["state"] == "interrupted", "an interrupted card")
        assert notebook.marks().count("begin 3") == 0
        status, problem = front.ask("POST", f"sessions/{session}/control", **pause)
        assert (status, problem["error"]) == (409, "ControlRefused")
        assert front.ask("POST", f"sessions/{session}/resume") == (200, {})
        front.until(lambda: front.card["state"] == "completed", "a completed card")
        assert notebook.marks().count("begin 2") == 1
        events = front.ask("GET", f"sessions/{session}/events?limit=500")[1]["events"]
        asked = [e for e in events if e["event_type"] == "ControlRequested"]
        assert [e["payload"].get("outcome", "accepted") for e in asked] == ["accepted", "refused"]
        assert all(e["actor"].endswith("@notebook") for e in asked)


def test_a_tool_call_is_approved_over_the_comm_with_other_arguments(tmp_path: Path) -> None:
    (tmp_path / "play.yaml").write_text(SCRIPT)
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS + SENDING)
        notebook.run("%%agent --bg --model scripted:play.yaml\nWrite a message.")
        until_state(notebook, "suspended")
        front = Front(notebook, "import ipyagent\nw = ipyagent.widget()\nNone")
        front.until(lambda: bool(front.card["asks"]), "a question")
        [ask] = front.card["asks"]
        assert json.loads(ask["details"])["arguments"] == {"to": "all", "text": "hello"}
        args = {"approval_id": ask["approval_id"], "answer": "approved", "digest": ask["digest"]}
        body = {"action": "answer", "task_id": front.card["task_id"], "expects": ["suspended"]}
        path = f"sessions/{front.card['session_id']}/control"
        status, problem = front.ask("POST", path, **body, args={**args, "digest": "0" * len(ask["digest"])})
        assert (status, problem["error"]) == (409, "ControlRefused")
        edited = {**args, "arguments": {"to": "anna", "text": "hello"}}
        assert front.ask("POST", path, **body, args=edited)[0] == 200
        front.until(lambda: front.card["state"] == "completed", "a completed card")
        assert notebook.marks() == ["send anna hello"]
        talk = front.ask("GET", f"sessions/{front.card['session_id']}/events?only=talk&max_payload=65536")[1]
        assert "done" in json.dumps(talk["events"])


def test_while_a_cell_runs_cards_come_and_a_page_with_a_subshell_is_answered(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        front = Front(notebook, "h = %agent run audit --n 4 --bg\nw = h.widget()\nw")
        notebook.send("gate('cell')")
        notebook.until_marked("begin 2")
        front.until(lambda: front.card["done"] == 2, "two are done")
        front.use_subshell()
        path = f"sessions/{front.card['session_id']}"
        assert front.ask("GET", path)[1]["shown"]["card"]["state"] == "running"
        notebook.open_gate()
        front.until(lambda: front.card["state"] == "completed", "a completed card")
        Path(f"{notebook.witness}.cell").touch()


def test_what_is_asked_wrongly_is_refused_in_words(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        notebook.open_gate()
        notebook.run("r = %agent run audit --n 4")
        front = Front(notebook, "import ipyagent\nw = ipyagent.widget('@last')\nNone")
        session = front.state["session_id"]
        for method, path, status in (
            ("GET", "sessions/..%2F..%2Fetc", 400),
            ("GET", "sessions/zzzz9999", 404),
            ("GET", f"sessions/{session}/events?after=-1", 400),
            ("GET", f"sessions/{session}/blobs/..", 400),
            ("GET", f"sessions/{session}/secrets", 404),
            ("POST", f"sessions/{session}/delete", 404),
            ("GET", "status", 404),
        ):
            got, problem = front.ask(method, path)
            assert (got, problem["status"]) == (status, status), path
            assert problem["message"]
        detail = front.ask("GET", f"sessions/{session}")[1]
        assert detail["shown"]["card"]["state"] == "completed"
        at = detail["shown"]["card"]["seq"]
        child = front.ask(
            "POST", f"sessions/{session}/fork", at=front.ask("GET", f"sessions/{session}/aftermath?at={at}")[1]["at"]
        )
        assert child[1]["parent"] == session
        front.say(type="wanted", subscribe=[child[1]["session_id"]])
        front.until(lambda: front.card["session_id"] == child[1]["session_id"], "a card of the fork")
        text = "**bold** <script>x</script> ![x](http://evil.example/a.png)"
        front.say(type="ask", nr="m", method="POST", path="markdown", body=text)
        front.until(lambda: "m" in front.answers, "Markdown")
        html = front.answers["m"][1].decode()
        assert "<strong>bold</strong>" in html
        assert "<script" not in html
        assert "<img" not in html
        assert front.ask("POST", f"sessions/{session}/rerun") == (200, {})
        notebook.until_marked("end 3", times=2)
        front.say(type="nonsense")
        front.until(lambda: any(m["type"] == "problem" for m in front.heard), "a problem")


def test_closing_the_widget_ends_its_thread_and_leaves_the_task_alone(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        Front(notebook, "h = %agent run audit --n 4 --bg\nw = h.widget()\nNone")
        ours = "import threading\nt = [x for x in threading.enumerate() if x.name == 'ipyagent-widget']\n"
        ran = notebook.run(ours + "w.close()\n[x.join(10) for x in t]\nprint([x.is_alive() for x in t], h.done)")
        assert ran.text.strip() == "[False] False"
        notebook.open_gate()


def test_it_stands_in_a_layout_and_headless_it_is_a_static_picture(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        notebook.open_gate()
        notebook.run("r = %agent run audit --n 4")
        code = "import ipyagent, ipywidgets\nbox = ipywidgets.HBox([ipyagent.widget(), ipywidgets.Label()])\nlen(box.children)"
        assert notebook.run(code).text.strip() == "2"
        seen = notebook.run(
            "w = ipyagent.widget()\nprint(*sorted(get_ipython().display_formatter.format(w)[0]))", headless=True
        )
        assert seen.text.strip() == "text/html text/plain"
        missing = notebook.run("ipyagent.widget('zzzz')")
        assert missing.error == "NotFound"
