"""pydantic-ai-harness StepPersistence on SQLite: an agent whose tools are the steps and whose model is played.

Its documentation: after a crash take the messages of the newest complete snapshot (`continue_run`) into a new run of the same
conversation; a tool call that the ledger has as started and that is in no snapshot may have happened, and the caller has to
find that out.  That is done here as a careful caller would: of each irreversible call since the snapshot the world is asked (a
`charge`) or a person (a `letter`), and the model is told which of them happened.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.step_persistence import SqliteStepStore, StepPersistence, continue_run
from tests.kill.peers.child import asked
from tests.kill.peers.steps import AFTER, APPROVAL, BEFORE, IRREVERSIBLE, STEPS, kind_of, perform, result_of
from tests.kill.witness import Witness

PACKAGES: Final = ("pydantic-ai-harness", "pydantic-ai-slim")
CONVERSATION: Final = "errands"
STAGES: Final = (*BEFORE, (APPROVAL,), *AFTER)
TOLD: Final = "These happened already: "


def known(messages: list[ModelMessage]) -> set[str]:
    """The steps whose results the model has been given, or of which it was told that they happened."""
    found: set[str] = set()
    for part in [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]:
        if isinstance(part, ToolReturnPart):
            found.add(part.tool_call_id)
        elif isinstance(part, UserPromptPart) and str(part.content).startswith(TOLD):
            found.update(str(part.content).removeprefix(TOLD).split())
    return found


def agent_of(store: SqliteStepStore, witness: Witness) -> Agent[None, str | DeferredToolRequests]:
    async def step(name: str) -> str:
        """A step."""
        return await asyncio.to_thread(perform, witness.path, name, asks_first=True)

    def send_letters() -> str:
        """Asks before it goes on to the letters."""
        return "approved"

    def play(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = known(messages)
        for name in STEPS:
            if name in done:
                witness.note("seen", id=name)
        for stage in STAGES:
            calls = [name for name in stage if name not in done]
            if calls == [APPROVAL]:
                return ModelResponse(parts=[ToolCallPart("send_letters", {}, APPROVAL)])
            if calls:
                return ModelResponse(parts=[ToolCallPart("step", {"name": name}, name) for name in calls])
        return ModelResponse(parts=[TextPart("; ".join(result_of(name) for name in STEPS if name in done))])

    return Agent(
        FunctionModel(play),
        tools=[Tool(step), Tool(send_letters, requires_approval=True)],
        output_type=[str, DeferredToolRequests],
        capabilities=[StepPersistence(store=store, agent_name="errands")],
    )


async def begin_again(store: SqliteStepStore, witness: Witness) -> tuple[list[ModelMessage], str]:
    """The messages to go on from, none for a new run, and what to say."""
    history: list[ModelMessage] = []
    started: set[str] = set()
    for record in reversed(await store.list_runs(conversation_id=CONVERSATION)):
        events = await store.list_events(run_id=record.run_id)
        started |= {e.tool_call_id for e in events if e.kind == "tool_call_started" and e.tool_call_id}
        try:
            history = await continue_run(store, run_id=record.run_id)
            break
        except LookupError:  # it was killed before its first snapshot: the run before it is what there is
            continue
    doubtful = [name for name in STEPS if name in started - known(history) and kind_of(name) in IRREVERSIBLE]
    for name in doubtful:
        if kind_of(name) == "letter":
            witness.note("person", id=name)
    happened = [name for name in doubtful if witness.happened(name)]
    return history, TOLD + " ".join(happened) if happened else "Run all errands once."


async def go(folder: Path, witness: Witness) -> str:
    store = SqliteStepStore(database=folder / "steps.sqlite")
    agent = agent_of(store, witness)
    history, prompt = await begin_again(store, witness)
    result = await agent.run(prompt, message_history=history, conversation_id=CONVERSATION)
    while isinstance(result.output, DeferredToolRequests):
        asked(witness)
        result = await agent.run(
            message_history=result.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={call.tool_call_id: True for call in result.output.approvals}),
            conversation_id=CONVERSATION,
        )
    return result.output


def run(folder: Path, witness: Witness) -> list[str]:
    folder.mkdir(exist_ok=True)
    return asyncio.run(go(folder, witness)).split("; ")
