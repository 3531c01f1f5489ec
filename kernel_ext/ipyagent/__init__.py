"""Durable agent tasks in a notebook: `%load_ext ipyagent` brings the `%agent` magics.

    from ipyagent import workflow, activity, tool, Retry

declares what they run.  Loading the extension stays cheap: the engine is imported when a command needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ipyagent_sessions import __version__

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ipyagent.task_widget import TaskWidget
    from ipyagent_sessions import (
        ActivityError,
        ActivityTimeout,
        Answer,
        CheckFailed,
        Context,
        Done,
        ResultLost,
        Retry,
        Session,
        Store,
        TaskNotCompleted,
        activity,
        declare_effect,
        idempotency_key,
        progress,
        tool,
        workflow,
    )

__all__ = [
    "ActivityError",
    "ActivityTimeout",
    "Answer",
    "CheckFailed",
    "Context",
    "Done",
    "ResultLost",
    "Retry",
    "Session",
    "Store",
    "TaskNotCompleted",
    "__version__",
    "activity",
    "declare_effect",
    "idempotency_key",
    "load_ipython_extension",
    "progress",
    "tool",
    "unload_ipython_extension",
    "widget",
    "workflow",
]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext ipyagent`: register the magics and say what was found unfinished."""
    from ipyagent.completion import complete
    from ipyagent.hello import greet
    from ipyagent.magics import AgentMagics

    shell.register_magics(AgentMagics(shell))
    shell.set_hook("complete_command", complete, re_key=r"\s*%agent\b")  # type: ignore[no-untyped-call]  # IPython has no types here
    greet(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext ipyagent`: take the magics away.  Tasks in the background go on."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("agent", None)


def widget(task: str | None = None) -> TaskWidget:
    """The live card of a task as a widget, also in front ends without our lab extension and in layouts of ipywidgets.

    `task` is an id, a unique beginning of one, a title, or `@last` (also without it): the newest of this notebook.  Raises
    NotFound, and UsageError when several fit or the extension is not loaded.
    """
    from ipyagent.task_widget import make

    return make(task)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("ipyagent_sessions"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
