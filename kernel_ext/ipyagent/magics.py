"""`%agent` and `%%agent`: parse, call, return."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from ipyagent import origin
from ipyagent_sessions.errors import IpyagentError, UsageError, refused_by_disk
from ipyagent_sessions.textsafe import plain_lines

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ipyagent.main_thread import MainThread
    from ipyagent_sessions.commands.door import Door, Talk


@magics_class
class AgentMagics(Magics):
    """The commands of `ipyagent_sessions.commands`, given in a cell."""

    _following = False

    @no_var_expand
    @line_cell_magic
    def agent(self, line: str, cell: str | None = None) -> Any:
        """%agent COMMAND ...   See: %agent help"""
        with _one_line_errors():
            return self.perform(_words(line, cell))

    @functools.cached_property
    def main(self) -> MainThread:
        """The kernel's main thread as tasks may use it."""
        from ipyagent.main_thread import MainThread

        return MainThread()

    @functools.cached_property
    def talk(self) -> Talk:
        """Which conversation the last prompt of this kernel went to."""
        from ipyagent_sessions.commands.door import Talk

        return Talk()

    def door(self, *, lenient: bool = False) -> Door:
        """This notebook as a place where commands are given; with `lenient` also beside a store that cannot be read."""
        from ipyagent_sessions.commands.door import Door
        from ipyagent_sessions.log.lease import this_process
        from ipyagent_sessions.run.launch import Origin
        from ipyagent_sessions.store import Store

        shell = self.here
        holder = this_process(kernel=origin.kernel_id(), by="notebook")
        where = Origin(origin.notebook(shell), origin.cell_id(shell), holder)
        headless = origin.is_headless(shell)
        return Door(Store(lenient=lenient), origin.actor(), where, shell.user_ns, headless, "%agent", Path.cwd(), self.talk)

    @property
    def here(self) -> InteractiveShell:
        """The shell these magics are registered in."""
        assert self.shell is not None
        return self.shell

    def perform(self, words: list[str]) -> Any:
        """Do a command of these words.  Raises what the engine raises."""
        from ipyagent.screen import Background, CellScreen, Finished, Picture
        from ipyagent_sessions.commands import parser
        from ipyagent_sessions.commands.dispatch import perform
        from ipyagent_sessions.commands.start import Ended
        from ipyagent_sessions.run.worker import TaskHandle
        from ipyagent_sessions.views.shown import Shown

        options = parser.parse("%agent", words)
        name = getattr(options, "out", None)
        if name and not name.isidentifier():
            raise UsageError(f"--out {name}: not the name of a variable")
        door = self.door(lenient=options.command == "doctor")
        with self._foreground(options), self._surrounded(door):
            result = perform(door, CellScreen(headless=door.headless, work=self.main.lend), options)
        if isinstance(result, TaskHandle):
            result = Background(result, headless=door.headless)
        if name:
            self.here.user_ns[name] = result.value if isinstance(result, Ended) else result
        if isinstance(result, Ended):
            said = result.kind == "agent"
            return Finished(result.value, result.task_id, result.session_id, said=said, taken=bool(name))
        if options.command == "status" and isinstance(result, Shown):
            return Picture(result, headless=door.headless)
        return result

    @contextlib.contextmanager
    def _surrounded(self, door: Door) -> Generator[None, None, None]:
        """Let the tasks that are started inside know this notebook."""
        from ipyagent.cells import Cells
        from ipyagent_sessions.agent import surroundings

        cells = Cells(self.here, self.main)
        token = surroundings.enter(surroundings.Surroundings(door.folder, self.here.user_ns, self.main.run, cells.run))
        try:
            yield
        finally:
            surroundings.leave(token)

    @contextlib.contextmanager
    def _foreground(self, options: Any) -> Generator[None, None, None]:
        """Refuse a foreground task inside another one: it would wait for itself."""
        from ipyagent_sessions.commands.dispatch import STARTING
        from ipyagent_sessions.run.inside import current

        runs = options.command in STARTING and not options.bg
        if runs and (self._following or current() is not None):
            raise UsageError(
                "a foreground task cannot be started inside another one", hint="start it with --bg, or after this one"
            )
        self._following = self._following or runs
        try:
            yield
        finally:
            self._following = self._following and not runs


def _words(line: str, cell: str | None) -> list[str]:
    """The words of a command.  A cell is the query of `%%agent sql`, or what is sent to an agent."""
    from ipyagent_sessions.commands import parser

    if cell is None:
        return parser.split(line)
    if line.split()[:1] == ["sql"]:
        return parser.split(f"{line} {cell}")
    words = parser.split(line)
    if words[:1] != ["ask"] and words[:1] and words[0] in parser.COMMANDS:
        raise UsageError(f"%%agent {words[0]}: this command takes no cell", hint=f"write %agent {words[0]} in a line")
    return ["ask", *words[words[:1] == ["ask"] :], "--", cell]


@contextlib.contextmanager
def _one_line_errors() -> Generator[None, None, None]:
    """Our own errors, and a disk that refuses, reach the cell as one line; they still stop Run All and nbclient."""
    try:
        with _named_disk():
            yield
    except IpyagentError as error:
        from ipyagent_sessions.commands.door import here

        error.message, error.hint = here(error.message, "%agent"), here(error.hint, "%agent")
        text = plain_lines(f"{type(error).__name__}: {error}")
        error._render_traceback_ = lambda: [text]  # type: ignore[attr-defined]  # IPython looks for it on the instance
        raise


@contextlib.contextmanager
def _named_disk() -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise refused_by_disk(error) from error
