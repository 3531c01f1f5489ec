"""The live card of a task as a widget, for front ends without our lab extension and for layouts of ipywidgets.

The view is the one of the lab extension, carried by the comm in place of the server.  Messages from the page:

    {"type": "wanted", "subscribe": [id, ...]}      which sessions to follow; answered by a hello and their cards
    {"type": "ask", "nr", "method", "path", "body"}      a request as to the server's routes

and to it:

    {"type": "live", "message"}      a message of the server's live stream
    {"type": "answer", "nr", "status"}      with the body as a buffer
A control only writes to the session's inbox, and nothing waits in the kernel's main thread.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from anywidget import AnyWidget
from IPython.core.getipython import get_ipython
from msgspec import Struct
from traitlets import Unicode

from ipyagent import origin
from ipyagent.answering import Answers, Reply
from ipyagent.watching import Watch
from ipyagent_sessions._version import __version__
from ipyagent_sessions.commands.look import card_of, show_card
from ipyagent_sessions.errors import ConfigError, IpyagentError, UsageError
from ipyagent_sessions.serving.finding import session_of
from ipyagent_sessions.serving.problems import Problem, is_known, problem_of
from ipyagent_sessions.serving.shapes import API, Hello, ProblemMessage
from ipyagent_sessions.store import Store

if TYPE_CHECKING:
    from ipyagent.magics import AgentMagics

BUILT: Final = Path(__file__).parent / "static"


class Wanted(Struct, tag="wanted", tag_field="type"):
    subscribe: list[str] = []


class Asked(Struct, tag="ask", tag_field="type"):
    nr: str
    method: str
    path: str
    body: str = ""


class TaskWidget(AnyWidget):
    """One task: progress, controls, timeline and log, live while this kernel lives.  Made by `ipyagent.widget`."""

    _esm = BUILT / "task.js"
    _css = BUILT / "task.css"
    session_id = Unicode().tag(sync=True)
    task_id = Unicode().tag(sync=True)

    def __init__(self, magics: AgentMagics, session_id: str, task_id: str) -> None:
        self._magics = magics
        _ = magics.main  # made here, in the main thread
        store = Store()
        self._answers = Answers(store, origin.actor(), magics.perform)
        self._watch = Watch(store, lambda message: self._live(message), self._problem)
        super().__init__(session_id=session_id, task_id=task_id)
        _keep_off_the_main_shell(self.comm)
        self.on_msg(self._take)
        self._watch.look([session_id])

    def close(self) -> None:
        """Stop following the task; the task itself goes on."""
        self._watch.stop()
        super().close()

    def __repr__(self) -> str:
        return f"<widget of task {self.task_id or self.session_id}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and beside it the static picture for who cannot draw widgets; headless the picture alone."""
        door = self._magics.door()
        shown = show_card(door, card_of(door, session_of(self._answers.store, self.session_id)))
        picture = {"text/plain": shown.text, "text/html": shown.html}
        if door.headless:
            return picture
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        return {**data, **picture}, metadata

    def _take(self, widget: Any, content: Any, buffers: Any) -> None:
        """A message of the page, in whatever thread the kernel reads it.  Nothing here waits, nothing is lost in silence."""
        try:
            message: Wanted | Asked = msgspec.convert(content, Wanted | Asked)
            if isinstance(message, Asked):
                threading.Thread(target=self._answer, args=(message,), name="ipyagent-answer", daemon=True).start()
            else:
                self._live(msgspec.to_builtins(Hello(API, __version__)))
                self._watch.look(message.subscribe)
        except (msgspec.ValidationError, IpyagentError, OSError) as error:
            self._live(msgspec.to_builtins(ProblemMessage(None, self._problem(error))))

    def _answer(self, asked: Asked) -> None:
        try:
            reply = self._answers.answer(asked.method, asked.path, asked.body)
        except Exception as error:  # noqa: BLE001  # the edge: the page is told, and what nobody foresaw goes to the log
            problem = self._problem(error)
            reply = Reply(problem.status, msgspec.json.encode(problem))
        self.send({"type": "answer", "nr": asked.nr, "status": int(reply.status)}, [reply.body])

    def _problem(self, error: Exception) -> Problem:
        if isinstance(error, msgspec.ValidationError):
            error = UsageError(f"the message is not what is expected: {error}")
        if not is_known(error):
            self.log.error("ipyagent: a widget could not do what it should", exc_info=error)
            return Problem(
                type(error).__name__, f"the kernel could not do it: {error}", "the kernel's log has the details", 500
            )
        return problem_of(error, self._answers.store.root)

    def _live(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the kernel is shutting down
            self.send({"type": "live", "message": message})


def make(wanted: str | None = None, task_id: str | None = None) -> TaskWidget:
    """The widget of a session, by its id, a unique beginning of one, a task id, a title, or `@last`.

    Raises NotFound, UsageError outside a notebook with the extension loaded, ConfigError where the front end was not built.
    """
    shell = get_ipython()
    magics: Any = shell.magics_manager.registry.get("AgentMagics") if shell is not None else None
    if magics is None:
        raise UsageError("a widget needs the extension in this kernel", hint="%load_ext ipyagent")
    if not (BUILT / "task.js").is_file():
        raise ConfigError(
            "this installation of ipyagent has no built front end, so it has no widget", hint="install the wheel, or: make lab"
        )
    session = magics.door().session(wanted)
    task = task_id or (wanted if wanted is not None and wanted.startswith(f"{session.id}.") else session.summary().task_id)
    return TaskWidget(magics, session.id, task or "")


def _keep_off_the_main_shell(comm: Any) -> None:
    """ipykernel 7.4 sends answers of a page to the shell that spoke last, which a running cell keeps busy.

    Where it does, let them go to the subshell that the page chose, as before 7.4.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default
