"""Where a turn takes place: what only the shell around the engine has.  A terminal has a folder and nothing else."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ipyagent_sessions.errors import UsageError

if TYPE_CHECKING:
    from ipyagent_sessions.agent.tools.workbench import CellResult, InMain


class Surroundings(Struct, frozen=True):
    """`folder` is the working folder.  `namespace` holds the notebook's variables, `in_main` runs a function in the kernel's
    main thread, `run_cell` runs code there as a cell, `show` shows a PNG; None where there is no kernel."""

    folder: Path = field(default_factory=Path.cwd)
    namespace: dict[str, Any] | None = None
    in_main: InMain | None = None
    run_cell: Callable[[str], Awaitable[CellResult]] | None = None
    show: Callable[[bytes], None] | None = None

    def variable(self, name: str, what: str) -> Any:
        """The notebook's variable `name`.  Raises UsageError when there is none."""
        if self.namespace is None or name not in self.namespace:
            raise UsageError(f"{what} {name}: there is no such variable here", hint="run the cell that defines it")
        return self.namespace[name]


_here: contextvars.ContextVar[Surroundings | None] = contextvars.ContextVar("ipyagent_surroundings", default=None)


def here() -> Surroundings:
    """Where the running code is: set by the shell that gave the command, else a bare folder."""
    return _here.get() or Surroundings()


def enter(place: Surroundings) -> contextvars.Token[Surroundings | None]:
    """Say where what is started from now on takes place; hand the token to `leave`."""
    return _here.set(place)


def leave(token: contextvars.Token[Surroundings | None]) -> None:
    _here.reset(token)
