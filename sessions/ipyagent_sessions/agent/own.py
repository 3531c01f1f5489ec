"""A pydantic-ai `Agent` of the user's own as a workflow: `%agent run my_agent "prompt"` (R112)."""

from __future__ import annotations

import sys
from typing import Any

from ipyagent_sessions.agent.permission import Permission
from ipyagent_sessions.run.checked import ATTEMPTS
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow


class AgentWorkflow(Workflow):
    """The turns of one agent; `target` names the variable that holds it, so that a resume finds it again."""

    kind = "agent"

    def __init__(self, agent: Any, name: str) -> None:
        async def turn(
            ctx: Context,
            prompt: str,
            model: str | None = None,
            approve: Permission = "ask",
            deps: str = "",
            check: str = "",
            attempts: int = ATTEMPTS,
            files: str = "",
        ) -> Any:
            from ipyagent_sessions.agent import assistant
            from ipyagent_sessions.agent.checking import Check

            passes = Check(check, attempts, files)
            return await assistant.turn_of(ctx, agent, prompt, model=model, approve=approve, deps=deps, check=passes)

        super().__init__(turn, name=name)
        self.model = _model_name(agent)

    @property
    def target(self) -> str:
        return f"__main__:{self.name}"

    def source_text(self) -> str:
        return ""


def is_agent(found: object) -> bool:
    """Whether `found` is an agent of pydantic-ai; does not import it."""
    library: Any = sys.modules.get("pydantic_ai.agent")
    return library is not None and isinstance(found, library.AbstractAgent)


def _model_name(agent: Any) -> str:
    """How the agent's own model is called, for lists."""
    model = agent.model
    return model if isinstance(model, str) else str(getattr(model, "model_name", None) or "unknown")
