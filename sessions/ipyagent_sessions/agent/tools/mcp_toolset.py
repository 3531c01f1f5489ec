"""One MCP server as a toolset of pydantic-ai, with effects in its tools' metadata, and harmless to the turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from ipyagent_sessions.agent.tools.declare import NAME, metadata
from ipyagent_sessions.agent.tools.mcp_config import Server
from ipyagent_sessions.agent.tools.results import bounded, failure
from ipyagent_sessions.run.definitions import Effect


def effect_of(server: Server, tool: str, hints: Mapping[str, Any] | None) -> Effect:
    """What a tool does to the world: as the config says, else as the server hints, else irreversible (R127)."""
    hints = hints or {}
    said = server.effects.get(tool)
    if said is not None:
        return said
    if hints.get("readOnlyHint"):
        return "none"
    return "idempotent" if hints.get("idempotentHint") else "irreversible"


@dataclass
class Guarded(WrapperToolset[Any]):
    """The tools of `server`, without those whose names no provider of models takes."""

    name: str
    server: Server

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """None at all once the server is gone: the turn goes on without it."""
        try:
            found = await super().get_tools(ctx)
        except Exception:  # noqa: BLE001  # whatever its client raises; a call would say the same
            return {}
        return {name: self._told(name, tool) for name, tool in found.items() if NAME.fullmatch(f"{self.name}_{name}")}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        """The bounded result.  Raises ToolFailed for whatever goes wrong: a retry that is counted could end the turn."""
        try:
            return bounded(await super().call_tool(name, tool_args, ctx, tool))
        except ModelRetry as error:
            raise ToolFailed(bounded(error.message)) from error
        except Exception as error:
            raise failure(error) from error

    def _told(self, name: str, tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
        had = tool.tool_def.metadata or {}
        said = metadata(effect_of(self.server, name, had.get("annotations")), self.server.approval)
        return replace(tool, toolset=self, tool_def=replace(tool.tool_def, metadata={**had, **said}))
