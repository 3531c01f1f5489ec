"""Whether a tool may be called without asking (R236, R239)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal

from msgspec import Struct

from ipyagent_sessions.run.definitions import Effect

Permission = Literal["auto", "ask", "never"]
PERMISSIONS: Final[tuple[Permission, ...]] = ("auto", "ask", "never")


class Rules(Struct, frozen=True):
    """What a turn may do and use.

    `mode` is the task's own: ask, auto (nothing is asked) or never (what would be asked is refused).  `tools` and `effects`
    are permissions by name and by effect; `unknown` is that of a tool that declares no effect.  `session_budget` bounds the
    session, see `budget`; a request to a person is denied after `expires_s` seconds; `attempts` is how often a model request
    is tried.
    """

    mode: Permission = "ask"
    tools: Mapping[str, Permission] = {}
    effects: Mapping[str, Permission] = {}
    unknown: Permission = "ask"
    session_budget: Mapping[str, float] = {}
    expires_s: float | None = None
    attempts: int = 5

    def decide(self, tool: str, effect: Effect | None, declared: Permission | None, allowed: Collection[str]) -> Permission:
        """auto: call it; ask: a person decides; never: the model is told that it may not.

        What is forbidden by name stays so in every mode; then counts what a person allowed always in this session, then the
        settings for the tool, what the tool declares, and what its effect means.
        """
        found = self.tools.get(tool) or declared
        if found == "never":
            return "never"
        if tool in allowed:
            return "auto"
        chosen = found or (self.unknown if effect is None else self.effects.get(effect, "auto" if effect == "none" else "ask"))
        if chosen == "ask" and self.mode != "ask":
            return self.mode
        return chosen
