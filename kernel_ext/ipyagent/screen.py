"""Where progress appears in a notebook: one output that is replaced while the task runs, and once more at its end.

Headless there is a single display at the end, since updates would be dropped or reported as unexpected.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

from IPython.display import DisplayHandle, display

from ipyagent_sessions.run.worker import TaskHandle
from ipyagent_sessions.textsafe import plain_lines
from ipyagent_sessions.views.markdown import html_of
from ipyagent_sessions.views.shown import Shown

if TYPE_CHECKING:
    from ipyagent.task_widget import TaskWidget

TASK_MIME: Final = "application/vnd.ipyagent.task+json"
"""Our front end draws an output with this key live from the server.  It holds ids only: what is shown and what an
approval confirms comes from the server, so a forged output cannot make a person approve something else than they read."""


def bundle_of(shown: Shown, *, headless: bool) -> dict[str, Any]:
    """`shown` in every form a front end may take.  Headless without our own key, which nbval would compare as a whole."""
    bundle: dict[str, Any] = {"text/plain": shown.text, "text/html": shown.html}
    if not headless and isinstance(shown.data, dict) and shown.data.get("task_id"):
        bundle[TASK_MIME] = {key: shown.data[key] for key in ("session_id", "task_id")}
    return bundle


class CellScreen:
    """The output of one cell; `work` lends the main thread, which waits here, to tasks."""

    def __init__(self, *, headless: bool, work: Callable[[], None]) -> None:
        self._headless = headless
        self._work = work
        self._handle: DisplayHandle | None = None

    def breathe(self) -> None:
        self._work()

    def update(self, shown: Shown) -> None:
        if not self._headless:
            self._show(shown)

    def final(self, shown: Shown) -> None:
        self._show(shown)
        self._handle = None

    def _show(self, shown: Shown) -> None:
        bundle = bundle_of(shown, headless=self._headless)
        if self._handle is None:
            self._handle = None if self._headless else DisplayHandle()  # type: ignore[no-untyped-call]  # IPython has no types here
            if self._handle is None:
                display(bundle, raw=True)  # type: ignore[no-untyped-call]  # IPython has no types here
            else:
                self._handle.display(bundle, raw=True)  # type: ignore[no-untyped-call]  # as above
        else:
            self._handle.update(bundle, raw=True)  # type: ignore[no-untyped-call]  # as above


class Finished:
    """What a foreground `run` returns: shown as the workflow's value, if it has one and no variable took it (`--out`).

    What an agent says is Markdown.
    """

    def __init__(self, value: Any, task_id: str, session_id: str, *, said: bool = False, taken: bool = False) -> None:
        self.value = value
        self._said = said
        self.task_id = task_id
        self.session_id = session_id
        self._taken = taken

    def __repr__(self) -> str:
        return f"<task {self.task_id} completed>"

    def _ipython_display_(self) -> None:
        if self._said and isinstance(self.value, str):
            display({"text/plain": plain_lines(self.value), "text/html": html_of(self.value)}, raw=True)  # type: ignore[no-untyped-call]  # as below
        elif self.value is not None and not self._taken:
            display(self.value)  # type: ignore[no-untyped-call]  # IPython has no types here


class Background:
    """What `--bg` returns: the handle of the task, shown as the task itself.  Await it, or ask for `result()`."""

    def __init__(self, handle: TaskHandle, *, headless: bool) -> None:
        self.handle = handle
        self._headless = headless

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)

    def widget(self) -> TaskWidget:
        """The live card as a widget: for layouts of ipywidgets, and front ends without our lab extension."""
        from ipyagent.task_widget import make

        return make(self.handle.session.id, self.handle.task_id)

    def __await__(self) -> Generator[Any, None, Any]:
        return self.handle.__await__()

    def __repr__(self) -> str:
        return f"<task {self.handle.task_id} in the background; see %agent status {self.handle.session.id}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        ids = {"session_id": self.handle.session.id, "task_id": self.handle.task_id}
        return bundle_of(Shown(repr(self), None, ids), headless=self._headless)


class Picture:
    """What commands that only look return: its text, its HTML, and live where the front end can draw it."""

    def __init__(self, shown: Shown, *, headless: bool) -> None:
        self.shown = shown
        self.data = shown.data
        self._headless = headless

    def __repr__(self) -> str:
        return self.shown.text

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        return bundle_of(self.shown, headless=self._headless)
