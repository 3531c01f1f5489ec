"""remember: what later conversations shall know."""

from __future__ import annotations

from ipyagent_sessions.agent.tools.declare import Tool
from ipyagent_sessions.agent.tools.workbench import Workbench, this_call


def remember(bench: Workbench) -> Tool:
    """The tool for this workbench.  Effect idempotent: the same call again changes nothing, whatever was written since."""

    def remember(namespace: str, key: str, value: str) -> str:
        """Keep a text for later conversations, in a place that outlives this one; one under the same name is replaced.

        Args:
            namespace: what it belongs to, like preferences or project/data; it lies below notes/.
            key: a short name to find it by.
            value: what to keep, at most a few sentences; of larger things keep the path of a file.
        """
        assert bench.notes is not None
        call = this_call("remember", {"namespace": namespace, "key": key, "value": value})
        return f"kept as {bench.notes.remember(namespace, key, value, call=call)}"

    return Tool(remember, effect="idempotent", sequential=True, unusable=lambda: no_store(bench))


def no_store(bench: Workbench) -> str | None:
    """Why nothing can be kept across conversations here."""
    return "there is no store of sessions here" if bench.notes is None else None
