"""The models of agents: how they are named, made, priced, played from a script or a recording, and what their errors mean.

pydantic-ai does the talking.  Importing this package imports neither it nor a client; making the first model does.
"""

from __future__ import annotations

from ipyagent_sessions.agent.models.naming import Choice, chosen, resolve
from ipyagent_sessions.agent.models.prices import cost_usd
from ipyagent_sessions.agent.models.status import ModelStatus, listed

__all__ = ["Choice", "ModelStatus", "chosen", "cost_usd", "listed", "resolve"]
