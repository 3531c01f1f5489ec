"""A session's story as a notebook: what was asked, what was done stage by stage, the results, what people decided.

Texts of models, tools and files stand in code spans and fences, which no renderer interprets.  The code cells run in a kernel
that reaches the store: they show each result from the log, and nothing is done again.  The workflow's own source is a code
cell only when it was written in a cell and the session was made in this store; otherwise it is only shown.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ipyagent_sessions.events import Event
from ipyagent_sessions.exchange import values
from ipyagent_sessions.exchange.lines import payload, told
from ipyagent_sessions.place import Place
from ipyagent_sessions.session import Session
from ipyagent_sessions.state import State
from ipyagent_sessions.textsafe import plain, plain_lines
from ipyagent_sessions.views import formats
from ipyagent_sessions.views.story import line_of

RESULTS: Final = 40
"""How many results get a cell; all activities are in the tables."""
_TOLD: Final = frozenset(
    {
        "TaskSuspended",
        "TaskInterrupted",
        "TaskResumed",
        "TaskFailed",
        "TaskCancelled",
        "ApprovalRequested",
        "ApprovalResolved",
        "FileWritten",
        "RecoveryCompleted",
        "AlarmRaised",
    }
)
_ABOUT: Final = {"ApprovalRequested": "details", "ApprovalResolved": "arguments"}
"""What of an event is told below its line: what a person was asked about, and the arguments as the person changed them."""
_ENDS: Final = frozenset({"TaskCompleted", "TaskFailed", "TaskCancelled"})
_OWN: Final = "ipyagent_sessions."
_LONGEST: Final = 4000


def notebook(session: Session) -> Any:
    """The notebook, as nbformat's node, valid for nbformat 4.5.  Raises DamageError for a log that cannot be folded."""
    return _Writer(session).write()


class _Writer:
    """Writes cell after cell."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.state: State = session.state()
        self.cells: list[Any] = []
        self._results = 0
        self._rows: list[str] = []
        self._shown: list[Event] = []
        self._returned: list[Event] = []
        self._said = ""
        self._began: dict[str, Event] = {}

    def write(self) -> Any:
        """The whole story."""
        import nbformat.v4 as v4

        self._head()
        for _, event in told(self.session):
            self._take(event)
        self._end()
        for number, cell in enumerate(self.cells):
            cell["id"] = f"{self.session.id[:40]}-{number}"  # the same session gives the same notebook
        made = v4.new_notebook(cells=self.cells)
        made.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
        return made

    def _head(self) -> None:
        system = self.state.system_state
        lines = [
            f"# {code(self.state.title or self.session.id)}",
            f"Session {code(self.session.id)}, {self.state.seq} events, "
            f"{code(self.state.created_at)} to {code(self.state.updated_at)}. "
            f"The newest task is **{system.status.value if system.status else 'none'}**: {code(system.target)}.",
            *_used(self.state),
            "Written from the log by `export --notebook`. The code cells show what the log holds, where its store is at hand.",
        ]
        self._markdown("\n\n".join(lines))
        root = self.session.place.root.absolute()
        store = "Store()" if root == Place().root.absolute() else f"Store({str(root)!r})"
        self._code("from ipyagent_sessions import Store\nfrom ipyagent_sessions.exchange.values import picture, value\n\n"
                   f"session = {store}.session({self.session.id!r})", None)  # fmt: skip

    def _take(self, event: Event) -> None:
        kind = event.event_type
        if kind in _ENDS:
            self._end()
        if kind == "TaskQueued":
            self._task(payload(self.session, event))
        elif kind == "MessageAdded":
            self._message(payload(self.session, event))
        elif kind == "PictureMade":
            self._flush()
            self._code(f"picture(session, {event.seq})", values.picture(self.session, event.seq))
        elif kind == "ActivityStarted":
            self._started(event)
        elif kind in ("ActivityCompleted", "ActivityFailed"):
            self._ended(event)
        elif kind == "ActivityCompensated":
            undone = payload(self.session, event).get("ok", True)
            self._row(event, "undone" if undone else "undoing failed", line_of(event))
        elif kind in _TOLD:
            self._told(event)
        elif kind == "TaskCompleted":
            given = payload(self.session, event).get("result") is not None
            shown = _output(values.of_event(self.session, event)) if given else ""
            new = f"\n\n{shown}" if shown not in ("", self._said) else ""
            self._markdown(f"{formats.clock(event.timestamp)} **completed**{new}")

    def _told(self, event: Event) -> None:
        self._flush()
        who = "" if event.actor == "engine" else f" by {code(event.actor, 80)}"
        about = payload(self.session, event).get(_ABOUT.get(event.event_type, ""))
        asked = f"\n\n{fence(_pretty(about))}" if about is not None else ""
        line = code(line_of(event), 300)
        self._markdown(f"{formats.clock(event.timestamp)} **{event.event_type}**{who}: {line}{asked}")

    def _message(self, body: dict[str, Any]) -> None:
        self._flush()
        role, text, tools = str(body.get("role", "message")), str(body.get("text", "")), body.get("tools")
        if role == "tool":  # it holds what the calls before it returned
            self._returned = []
        elif role == "assistant":
            self._said = fence(text)
        calls = f" calls {code(', '.join(map(str, tools)))}" if isinstance(tools, list) and tools else ""
        said = f"\n\n{fence(text)}" if text or not calls else ""
        self._markdown(f"**{code(role, 40)}**{calls}{said}")

    def _task(self, body: dict[str, Any]) -> None:
        self._end()
        self._said = ""
        target = str(body.get("target", ""))
        args = body.get("args")
        given = f" with:\n\n{fence(_pretty(args))}" if args is not None else ""
        self._markdown(f"## Task {code(body.get('title') or target)}\n\n{code(target)}{given}")
        source = body.get("source")
        if not isinstance(source, str) or not source or target.startswith(_OWN):
            return
        if target.startswith("__main__:") and self.session.native:
            self._markdown("It was defined in a cell. The activities that it calls are defined elsewhere in that notebook.")
            self._code(f"from ipyagent import Retry, activity, workflow\n\n{plain_lines(source)}", None)
        else:
            self._markdown(f"Its source when it was started:\n\n{fence(source, 'python')}")

    def _started(self, event: Event) -> None:
        self._began[event.activity_id or ""] = event
        body = payload(self.session, event)
        if body.get("kind") == "stage":
            self._flush()
            self._markdown(f"### Stage {code(event.activity_id or '')} {code(str(body.get('name', '')))}")

    def _ended(self, event: Event) -> None:
        body = payload(self.session, event)
        if body.get("kind") in ("stage", "value", "sleep", "note"):
            return
        state = "completed" if event.event_type == "ActivityCompleted" else "failed"
        self._row(event, state, self._did(event, body))
        if state == "completed" and body.get("result") is not None and body.get("kind") != "model":
            (self._returned if body.get("kind") == "tool" else self._shown).append(event)

    def _row(self, event: Event, state: str, did: str) -> None:
        took = formats.duration(event.execution_time_ms / 1000) if event.execution_time_ms is not None else ""
        cells = [code(event.activity_id or "", 100), state, took, code(did, 300)]
        self._rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")

    def _did(self, event: Event, body: dict[str, Any]) -> str:
        """What an activity was: of a tool its arguments, and its error if it failed."""
        began = self._began.get(event.activity_id or "")
        if body.get("kind") != "tool" or began is None:
            return line_of(event)
        args = payload(self.session, began).get("args")
        named = args[1] if isinstance(args, list) and len(args) == 2 else {} if args == [[]] else args
        called = f"{body.get('name', '')} {values.as_text(named)}"
        failed = event.event_type == "ActivityFailed"
        return f"{called}: {body.get('error_type', '')}: {body.get('error', '')}" if failed else called

    def _flush(self) -> None:
        """The activities since the last time: a table, then the results."""
        if self._rows:
            self._markdown("\n".join(["| activity | state | took | |", "|---|---|---|---|", *self._rows]))
        for event in self._shown[: RESULTS - self._results]:
            self._results += 1
            call = f"value(session, {event.activity_id!r})"
            if plain(call) == call:
                self._code(call, values.of_event(self.session, event))
        self._rows, self._shown = [], []

    def _end(self) -> None:
        """The end of a task: what calls of tools returned and no message told is shown, as other results are."""
        self._shown += self._returned
        self._returned = []
        self._flush()

    def _markdown(self, text: str) -> None:
        import nbformat.v4 as v4

        self.cells.append(v4.new_markdown_cell(text))

    def _code(self, source: str, result: values.Value | None) -> None:
        import nbformat.v4 as v4

        outputs = [v4.new_output("execute_result", data=result.bundle, execution_count=None)] if result is not None else []
        self.cells.append(v4.new_code_cell(source, outputs=outputs))


def _used(state: State) -> list[str]:
    """What the models were asked and what that cost, a line if any was."""
    if not state.requests:
        return []
    requests = f"{state.requests} model request{'s' if state.requests != 1 else ''}"
    tokens = f"{formats.quantity(state.input_tokens)} tokens in, {formats.quantity(state.output_tokens)} out"
    return [f"{requests}, {tokens}, {formats.cost(state.cost_usd, state.unpriced)}."]


def code(text: str, width: int = 200) -> str:
    """`text` as a code span: one line, harmless, with a fence longer than any inside it."""
    line = plain(text, width)
    if not line.strip():
        return ""
    ticks = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    return f"{ticks} {line} {ticks}"


def fence(text: str, language: str = "") -> str:
    """`text` as a fenced block, cut to a few thousand characters."""
    body = plain_lines(text[:_LONGEST]) + (f"\n... {len(text) - _LONGEST} more characters" if len(text) > _LONGEST else "")
    ticks = "`" * max(3, max(map(len, re.findall("`+", body)), default=0) + 1)
    return f"{ticks}{language}\n{body}\n{ticks}"


def _output(shown: values.Value) -> str:
    return fence(shown.bundle["text/plain"])


def _pretty(args: Any) -> str:
    return values.bundle(args)["text/plain"]
