"""Which stage the body is in, and the ids of what it calls next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ipyagent_sessions.errors import IdentityError, UsageError
from ipyagent_sessions.run import calls, identity
from ipyagent_sessions.run.inside import current
from ipyagent_sessions.run.task import TaskRun


def is_within(activity_id: str, stage: str) -> bool:
    """Whether an activity is of that stage or of one in it; every one is when none is named."""
    return not stage or activity_id.startswith((f"{stage}/", f"{stage}."))


class Names:
    """The identities that one run of a body has given out."""

    def __init__(self, run: TaskRun) -> None:
        self._run = run
        self._stages: list[str] = []
        self._children: dict[str, int] = {}
        self._occurrences: dict[str, int] = {}
        self._keyed: set[str] = set()
        self._open: dict[str, set[str]] = {}
        self._staged_by: asyncio.Task[Any] | None = None
        self.stage = ""
        """The id of the innermost open stage, empty outside of any."""

    def place(self, name: str) -> str:
        """Stage and name: what the key or the occurrence is appended to."""
        return f"{self.stage or identity.MAIN}/{name}"

    def identify(self, name: str, key: Any) -> str:
        """The id of the next call of `name`; raises IdentityError when it is not unambiguous."""
        if current() is not None:
            raise UsageError(f"ctx was used inside an activity (for {name})", hint="only the workflow's body uses ctx")
        place = self.place(name)
        if key is not None:
            made = f"{place}:{identity.key_text(name, key)}"
            self._check_new(made)
            self._keyed.add(made)
        else:
            if self._open.get(place):
                raise IdentityError(
                    f"{name} is called while another call of it is open", hint="give it a key: ctx.run(f, x, key=x)"
                )
            if self.beside_others():
                raise IdentityError(
                    f"{name} is called without a key from one of several parallel coroutines",
                    hint="give it a key: which one comes first may differ next time",
                )
            number = self._occurrences[place] = self._occurrences.get(place, 0) + 1
            made = f"{place}#{number}"
            if made in self._keyed:
                self._check_new(made)
        return made

    def _check_new(self, made: str) -> None:
        """Raise IdentityError when `made` was given out before, keyed or as an occurrence: a name may have signs of ids."""
        place, _, number = made.rpartition("#")
        plain = number.isascii() and number.isdecimal() and number[0] != "0"  # as occurrences are written: from 1 on
        counted = plain and int(number) <= self._occurrences.get(place, 0)
        if made in self._keyed or counted:
            raise IdentityError(f"{made} exists already in this run", hint="give each call of one function a key of its own")

    def beside_others(self) -> bool:
        """Whether the running code may be one of several coroutines side by side: of `gather`, or in a task of its own."""
        return calls.parallel.get() or asyncio.current_task() is not self._run.body

    def open(self, made: str, name: str) -> Callable[[str], None]:
        """Note a call that was made and is still to be awaited; returns what to call with its id once it was."""
        here = self._open.setdefault(self.place(name), set())
        here.add(made)
        return here.discard

    def check_awaited(self, stage: str = "") -> None:
        """Raise UsageError when a call was made (in `stage`, if one is named) and never awaited: it did not run."""
        forgotten = sorted(made for place, made_here in self._open.items() for made in made_here if is_within(place, stage))
        if forgotten:
            raise UsageError(f"{forgotten[0]} was never awaited, so it did not run", hint="write: await ctx.run(...)")

    def enter(self, name: str) -> tuple[str, str]:
        """Open the next stage; returns its id and its parent's.  Raises IdentityError beside another one."""
        if self._staged_by is not None and self._staged_by is not asyncio.current_task():
            raise IdentityError(f"stage {name!r} begins beside another one", hint="stages follow one another")
        parent = self.stage
        number = self._children[parent] = self._children.get(parent, 0) + 1
        made = f"{parent}.{number}" if parent else str(number)
        self._stages.append(made)
        self.stage = made
        self._staged_by = asyncio.current_task()
        return made, parent

    def skip(self, stages: int) -> None:
        """Number the next stage as if so many had been here before it."""
        self._children[self.stage] = self._children.get(self.stage, 0) + stages

    def leave(self) -> None:
        """Close the innermost stage."""
        self._stages.pop()
        self.stage = self._stages[-1] if self._stages else ""
        if not self._stages:
            self._staged_by = None
