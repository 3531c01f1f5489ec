"""Stages: named parts of the work that follow one another, each ending in a checkpoint with its number."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ipyagent_sessions import payloads
from ipyagent_sessions.errors import IdentityError
from ipyagent_sessions.run.naming import Names
from ipyagent_sessions.run.task import TaskRun


class Stage:
    """See `Context.stage`.  `id` is its number (1, 2, 2.1, ...) once it is open."""

    def __init__(self, run: TaskRun, names: Names, name: str, *, checked: bool = False) -> None:
        self._run = run
        self._names = names
        self.name = name
        self.id = ""
        self._checked = checked

    async def __aenter__(self) -> Self:
        run = self._run
        self.id, parent = self._names.enter(self.name)
        try:
            known = run.state.execution_state.stages.get(self.id)
            if known is not None and known.name != self.name:
                raise IdentityError(
                    f"stage {self.id} was recorded as {known.name!r} and is now {self.name!r}",
                    hint="undo the change, or start a new task with: ipyagent run ... --new",
                )
            if known is None:
                run.check()
                started = payloads.ActivityStarted(self.name, "stage", stage=parent, checked=self._checked)
                run.emit("ActivityStarted", started, activity_id=self.id)
        except BaseException:
            self._names.leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run = self._run
        self._names.leave()
        if error is not None or run.state.execution_state.stages[self.id].done:
            return
        self._names.check_awaited(self.id)
        run.emit("ActivityCompleted", payloads.ActivityCompleted(self.name, "stage"), activity_id=self.id)
        run.checkpoint("stage", self.id)
        run.acknowledge()
