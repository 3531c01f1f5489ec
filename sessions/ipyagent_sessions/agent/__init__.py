"""Agents: turns of a conversation with a model, whose every request and tool call is a durable activity.

The loop is pydantic-ai's.  Nothing here is imported before the first agent runs: pydantic-ai and its clients are slow to
import."""
