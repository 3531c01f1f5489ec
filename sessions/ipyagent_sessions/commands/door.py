"""Who asks, from where, and what is at hand there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from ipyagent_sessions.commands.parser import COMMANDS
from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.run.launch import Origin
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

VARIABLE: Final = re.compile(r"\{([A-Za-z_]\w*)\}")
"""How a line names a variable of the notebook."""


_COMMAND: Final = re.compile(rf"\bipyagent (?={'|'.join(COMMANDS)}\b)")


def here(text: str, prefix: str) -> str:
    """`text` with the commands it names written as at the door of that prefix."""
    return _COMMAND.sub(f"{prefix} ", text)


class Talk(Struct):
    """Which conversation the last prompt of this place went to; empty before the first."""

    session_id: str = ""


class Door(Struct):
    """The place a command is given at.

    `namespace` is where names are looked up (the notebook's variables), None in a terminal.  `headless` means that nobody
    can answer here.  `prefix` is how commands are written at this door, for hints.  `talk` is remembered from
    one command to the next by a shell that knows no path of its notebook."""

    store: Store
    actor: str
    origin: Origin = Origin()
    namespace: Mapping[str, Any] | None = None
    headless: bool = False
    prefix: str = "ipyagent"
    folder: Path = Path()
    talk: Talk = field(default_factory=Talk)

    def session(self, wanted: str | None, *, current: bool = False) -> Session:
        """The session of an id, a unique beginning of one, a task id, a title, `{name}` (a variable that holds one of these),
        or `@last` (also when nothing is given).  `current`: what is done is done to the task that the session is at, so
        another one must not be named.

        `@last` is the newest of this notebook, or of the store in a terminal.  Raises NotFound, and UsageError with the
        candidates when several fit, or for a task that is over.
        """
        if wanted is not None and (variable := VARIABLE.fullmatch(wanted)):
            wanted = self._variable(variable[1])
        if wanted is not None and wanted != "@last":
            return self.store.find(wanted, current=current)
        for listed in self.store.sessions():
            summary = listed.summary
            if (
                summary is not None
                and summary.task_id
                and (self.origin.notebook is None or summary.notebook == self.origin.notebook)
            ):
                return self.store.session(listed.session_id)
        where = "this notebook" if self.origin.notebook else f"{self.store.root}"
        raise NotFound(f"there is no task of {where} yet", hint=f"start one with: {self.prefix} run TARGET")

    def without_secrets(self, text: str) -> str:
        """`text` as it may be stored: what a person types into a command may hold a key too (R257).  Raises ConfigError when
        the settings cannot be read."""
        if not text:
            return text
        from ipyagent_sessions.agent.settings import Settings

        return Settings.load(self.folder).known_secrets().scrub(text)

    def _variable(self, name: str) -> str:
        """The id in a variable of the notebook.  Raises UsageError."""
        found = (self.namespace or {}).get(name)
        if not isinstance(found, str):
            raise UsageError(
                f"{{{name}}}: "
                + ("there is no such variable" if found is None else f"it is of type {type(found).__name__}, not an id"),
                hint="an id of a session or a task, or @last",
            )
        return found

    def asked(self, wanted: str | None) -> Session:
        """The session of an id; without one the only session that waits for a person.  Raises NotFound."""
        if wanted is not None:
            return self.session(wanted, current=True)
        waiting = [x for x in self.store.sessions() if x.summary is not None and x.summary.needs_you]
        if len(waiting) > 1:
            listed = ", ".join(f"{x.session_id} ({x.summary.title})" for x in waiting[:5] if x.summary is not None)
            raise NotFound(f"{len(waiting)} sessions wait for an answer: {listed}", hint="say which one")
        return self.store.session(waiting[0].session_id) if waiting else self.session(None)
