"""Durable tasks: workflows and agent turns whose every key action is an event in an append-only log of open files.

    from ipyagent_sessions import Store, workflow, activity, run_workflow

    @activity(effect="none")
    async def measure(path): ...

    @workflow
    async def survey(ctx, root): ...

    handle = run_workflow(Store(), survey, args=("data",))
    handle.result()

This package is the engine: it knows no Jupyter.  Reading (`Store`, `Session`) takes no lock and works beside a running task;
running needs the lease of a session, which one process holds at a time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ipyagent_sessions._version import __version__

if TYPE_CHECKING:
    from ipyagent_sessions.agent.tools.declare import Tool, tool
    from ipyagent_sessions.errors import (
        ActivityError,
        ActivityTimeout,
        CheckFailed,
        IpyagentError,
        ResultLost,
        TaskNotCompleted,
    )
    from ipyagent_sessions.events import Event, from_document
    from ipyagent_sessions.run.context import Context
    from ipyagent_sessions.run.definitions import Activity, Done, Retry, Workflow, activity, workflow
    from ipyagent_sessions.run.inside import declare_effect, progress
    from ipyagent_sessions.run.keys import idempotency_key
    from ipyagent_sessions.run.launch import resume_task, run_workflow
    from ipyagent_sessions.run.waiting import Answer
    from ipyagent_sessions.run.worker import TaskHandle
    from ipyagent_sessions.session import Session
    from ipyagent_sessions.store import Store

_PLACES = {
    "Tool": "agent.tools.declare",
    "tool": "agent.tools.declare",
    "ActivityError": "errors",
    "ActivityTimeout": "errors",
    "CheckFailed": "errors",
    "IpyagentError": "errors",
    "ResultLost": "errors",
    "TaskNotCompleted": "errors",
    "Event": "events",
    "from_document": "events",
    "Answer": "run.waiting",
    "Context": "run.context",
    "Activity": "run.definitions",
    "Done": "run.definitions",
    "Retry": "run.definitions",
    "Workflow": "run.definitions",
    "activity": "run.definitions",
    "workflow": "run.definitions",
    "declare_effect": "run.inside",
    "progress": "run.inside",
    "idempotency_key": "run.keys",
    "resume_task": "run.launch",
    "run_workflow": "run.launch",
    "TaskHandle": "run.worker",
    "Session": "session",
    "Store": "store",
}

__all__ = [
    "Activity",
    "ActivityError",
    "ActivityTimeout",
    "Answer",
    "CheckFailed",
    "Context",
    "Done",
    "Event",
    "IpyagentError",
    "ResultLost",
    "Retry",
    "Session",
    "Store",
    "TaskHandle",
    "TaskNotCompleted",
    "Tool",
    "Workflow",
    "__version__",
    "activity",
    "declare_effect",
    "from_document",
    "idempotency_key",
    "progress",
    "resume_task",
    "run_workflow",
    "tool",
    "workflow",
]


def __getattr__(name: str) -> Any:
    """Names come from their modules on first use, so that importing the package stays cheap."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{place}"), name)
