"""The conversation of a session: continued by the next turn, followed when a library rewrites it, whatever is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, ModelRetry, Tool, ToolReturn
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from tests.run.harness import PATIENCE, Engine, Gate, Witness, bodies, of_type
from tests.turn.play import Play, agent_of, cut, talking

from ipyagent_sessions.agent.conversation import exchanges, messages_of, thread
from ipyagent_sessions.agent.models.cassette import CassetteModel
from ipyagent_sessions.run import launch
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.session import Session


def messages(session: Session) -> list[ModelMessage]:
    return messages_of(session, thread(session).kept)


def test_the_second_and_third_turn_continue_the_first(engine: Engine) -> None:
    play = Play("one", "two", "three")
    flow = talking(agent_of(play))
    session = engine.ended(engine.start(flow, "a"), "completed")
    for prompt in ("b", "c"):
        engine.ended(engine.start(flow, prompt, session=session), "completed")
    assert play.sent[-1] == ["user-prompt:=a", "text:=one", "user-prompt:=b", "text:=two", "user-prompt:=c"]
    assert play.faults == []
    assert [b.get("index", 0) for b in bodies(session, "MessageAdded")] == [0, 1, 2, 3, 4, 5]
    assert [e.activity_id for e in of_type(session, "ActivityCompleted")] == ["main/model:1"] * 3


def test_a_turn_with_an_output_tool_is_continued(engine: Engine) -> None:
    play = Play([("final_result", {"response": 1})], [("final_result", {"response": 2})])
    flow = talking(Agent(play.model, output_type=[int]))
    first = engine.start(flow, "a")
    assert first.result(PATIENCE) == 1
    assert engine.start(flow, "b", session=first.session).result(PATIENCE) == 2
    assert play.faults == []
    assert play.sent[-1] == [
        "user-prompt:=a",
        "tool-call:final_result",
        "tool-return:final_result=Final result processed.",
        "user-prompt:=b",
    ]


def kept_last(found: list[ModelMessage]) -> list[ModelMessage]:
    """What a compaction does: a summary in the place of all but the newest exchange."""
    if len(found) < 5:
        return found
    head = ModelRequest(parts=[UserPromptPart(f"[{len(found) - 3} messages were here]")])
    return [head, *found[-2:]]


def test_a_history_that_is_compacted_is_followed_wherever_it_is_cut(engine: Engine, tmp_path: Path) -> None:
    calls = [[("note", {"i": i})] for i in range(6)]

    def world(witness: Witness) -> tuple[Counted, Any]:
        play = Counted(*calls, "done")

        def note(i: int) -> str:
            witness(i)
            return f"noted {i}"

        return play, talking(agent_of(play, [note], capabilities=[ProcessHistory(kept_last)]))

    undisturbed = Witness(tmp_path / "undisturbed")
    play, flow = world(undisturbed)
    whole = engine.ended(engine.start(flow, "go"), "completed")
    assert undisturbed.order == list("012345")
    assert play.faults == []
    sent = play.sent[-1]
    assert len(messages(whole)) < 6
    events = list(whole.events())
    for n in range(3, of_type(whole, "TaskCompleted")[0].seq):
        witness = Witness(tmp_path / f"witness-{n}")
        done = sum(e.event_type == "ActivityCompleted" and "/note" in (e.activity_id or "") for e in events[:n])
        play, flow = world(witness)
        play.said = sum(e.event_type == "MessageAdded" and e.activity_id is not None for e in events[:n])
        session = cut(whole, tmp_path / f"cut-{n}", n)
        handle = launch.resume_task(session, flow, options=RunOptions(headless=True))
        assert handle.wait(PATIENCE)
        open_call = any(e.event_type == "ActivityStarted" for e in events[n - 1 : n]) and "note" in (
            events[n - 1].activity_id or ""
        )
        if open_call:
            assert handle.outcome is not None
            assert handle.outcome.reason == "approval"
            continue
        assert handle.outcome is not None
        assert handle.outcome.state == "completed", handle.outcome
        assert witness.order == list("012345")[done:]
        assert play.faults == []
        if play.sent:
            assert [part for part in play.sent[-1] if "This turn was stopped" not in part][-1:] == sent[-1:]


class Counted(Play):
    """A model that knows how often it has answered, whatever it is sent."""

    said = 0

    def number(self, messages: list[ModelMessage]) -> int:
        self.said += 1
        return self.said - 1


HOSTILE = '\ud800 \0 \u2028 <script>alert(1)</script> \x1b[2J \u202e {"$": "dict"} \' " \\'


def test_hostile_text_of_all_sides_is_kept_without_what_no_text_can_hold(engine: Engine, tmp_path: Path) -> None:
    """Lone surrogates and NUL become U+FFFD, alike for the model and in the log; everything else comes back as it was."""
    clean = HOSTILE.replace("\ud800", "\ufffd").replace("\0", "\ufffd")
    play = Play([("echo", {"text": HOSTILE[1:]}), ("fail", {}), ("again", {})], HOSTILE)

    def echo(text: str) -> Any:
        return {"$": HOSTILE, "said": text, HOSTILE[1:]: [HOSTILE]}

    def fail() -> str:
        raise ToolFailed(HOSTILE)

    def again() -> str:
        raise ModelRetry(HOSTILE)

    free = {"effect": "none"}
    flow = talking(agent_of(play, [Tool(echo, metadata=free), Tool(fail, metadata=free), Tool(again, metadata=free)]))
    whole = engine.ended(engine.start(flow, HOSTILE), "completed")
    first = play.sent[-1]
    assert first[0] == f"user-prompt:={clean}"
    assert first[-2:] == [f"tool-return:fail={clean}", f"tool-return:again={clean}"]
    assert str({"$": clean, "said": clean[1:], clean[1:]: [clean]}) in first[-3]
    for event in of_type(whole, "ActivityCompleted"):
        play.sent.clear()
        session = cut(whole, tmp_path / str(event.seq), event.seq)
        launch.resume_task(session, flow).result(PATIENCE)
        assert not play.sent or [p for p in play.sent[-1] if "This turn was stopped" not in p] == first
    engine.ended(engine.start(flow, "and now", session=whole), "completed")
    assert play.sent[-2] == [*first, f"text:={clean}", "user-prompt:=and now"]


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


def itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Odd(), "<odd>"),
        ({"x": Odd()}, "{'x': <odd>}"),
        (itself(), "[[...]]"),
        (iter([1, 2]), "[1, 2]"),
        ({1: b"ab"}, "{'1': 'YWI='}"),
        ((1, {2}), "[1, [2]]"),
        ({"big": 2**70, "small": 1e-320}, "{'big': 1180591620717411303424, 'small': 1e-320}"),
        ({"kind": "image-url", "url": "http://127.0.0.1/x"}, "{'kind': 'image-url', 'url': 'http://127.0.0.1/x'}"),
    ],
)
def test_whatever_a_tool_returns_the_model_is_told_the_same_before_and_after_a_crash(
    engine: Engine, tmp_path: Path, value: Any, told: str
) -> None:
    play = Play([("give", {})], "done")

    def give() -> Any:
        return value

    flow = talking(agent_of(play, [Tool(give, metadata={"effect": "irreversible"})]))
    whole = engine.ended(engine.start(flow, "go"), "completed")
    first = play.sent[-1]
    assert first[-1] == f"tool-return:give={told}"
    session = cut(whole, tmp_path / "cut", of_type(whole, "ActivityCompleted")[1].seq)
    launch.resume_task(session, flow).result(PATIENCE)
    assert first[-1] in play.sent[-1]


def test_pictures_and_large_results_are_kept_as_blobs_and_sent_again(engine: Engine) -> None:
    picture = BinaryContent(b"\x89PNG" + bytes(range(256)) * 400, media_type="image/png")
    play = Play([("draw", {}), ("dump", {})], "seen")

    def draw() -> ToolReturn:
        return ToolReturn("drawn", content=["look:", picture])

    def dump() -> str:
        return "x" * 20_000_000

    flow = talking(agent_of(play, [draw, dump]))
    session = engine.ended(engine.start(flow, "go"), "completed")
    first = play.sent[-1]
    engine.ended(engine.start(flow, "again", session=session), "completed")
    assert play.sent[-1][: len(first)] == first
    assert play.faults == []
    for journal in session.layout.journals():
        assert journal.path.stat().st_size < 1_000_000


def test_after_a_crash_a_picture_that_a_tool_made_is_sent_to_the_model(engine: Engine, gate: Gate, tmp_path: Path) -> None:
    picture = BinaryContent(b"\x89PNG" + bytes(range(256)), media_type="image/png")
    play = Play([("draw", {}), ("raw", {})], "seen")

    def draw() -> ToolReturn:
        return ToolReturn("drawn", content=["look:", picture])

    def raw() -> Any:
        return picture

    free = {"effect": "none"}
    flow = talking(agent_of(play, [Tool(draw, metadata=free), Tool(raw, metadata=free)]))
    whole = engine.ended(engine.start(flow, "go"), "completed")
    first = play.sent[-1]
    for event in of_type(whole, "ActivityCompleted"):
        play.sent.clear()
        handle = launch.resume_task(cut(whole, tmp_path / str(event.seq), event.seq), flow)
        assert handle.result(PATIENCE) == "seen"
        if play.sent:
            assert [part for part in play.sent[-1] if "This turn was stopped" not in part] == first


def test_a_session_is_played_again_as_a_cassette(engine: Engine) -> None:
    def look(at: str) -> str:
        return f"{at} seen"

    play = Play([("look", {"at": "a"}), ("look", {"at": "b"})], "one", [("look", {"at": "c"})], "two")
    flow = talking(agent_of(play, [look]))
    session = engine.ended(engine.start(flow, "go"), "completed")
    engine.ended(engine.start(flow, "on", session=session), "completed")
    found = exchanges(session)
    assert len(found) == 4
    cassette = Agent(CassetteModel("s", found), tools=[look])
    again = talking(cassette)
    first = engine.start(again, "go")
    assert first.result(PATIENCE) == "one"
    assert engine.start(again, "on", session=first.session).result(PATIENCE) == "two"
    other = engine.start(again, "something else")
    engine.ended(other, "failed")
    assert "differs from the recorded one" in str(other.outcome and other.outcome.error)


def test_a_session_that_was_cut_anywhere_and_resumed_is_played_again_as_a_cassette(engine: Engine, tmp_path: Path) -> None:
    """The notice of the resume is no part of what the same notebook asks when nothing stops it."""

    def look(at: str) -> str:
        return f"{at} seen"

    tools = [Tool(look, metadata={"effect": "none"})]
    flow = talking(agent_of(Play([("look", {"at": "a"}), ("look", {"at": "b"})], "one"), tools))
    whole = engine.ended(engine.start(flow, "go"), "completed")
    for event in of_type(whole, "ActivityCompleted", "MessageAdded"):
        session = cut(whole, tmp_path / str(event.seq), event.seq)
        assert launch.resume_task(session, flow).result(PATIENCE) == "one"
        again = talking(Agent(CassetteModel("s", exchanges(session)), tools=tools))
        assert engine.start(again, "go").result(PATIENCE) == "one"


def test_a_fork_continues_the_conversation_of_its_parent(engine: Engine) -> None:
    play = Play("one", "two", "three")
    flow = talking(agent_of(play))
    session = engine.ended(engine.start(flow, "a"), "completed")
    fork = session.fork()
    engine.ended(engine.start(flow, "b", session=fork), "completed")
    engine.ended(engine.start(flow, "c", session=session), "completed")
    assert play.sent[-2] == ["user-prompt:=a", "text:=one", "user-prompt:=b"]
    assert play.sent[-1] == ["user-prompt:=a", "text:=one", "user-prompt:=c"]
