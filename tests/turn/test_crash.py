"""However a turn is cut off, and however often, it ends as it would have: each call that has a result ran once, an
irreversible one that was under way is asked about or verified, and the model gets every result exactly once (R151)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.exceptions import ToolFailed
from tests.run.harness import PATIENCE, Engine, Witness, answer, bodies, of_type, refolded
from tests.turn.play import Play, cut, shown, talking

from ipyagent_sessions.run import launch
from ipyagent_sessions.run.definitions import Done, Workflow
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.session import Session


class Report(BaseModel):
    title: str
    points: list[int]


@dataclass
class Deps:
    prefix: str


class World:
    """One process: a model, an agent whose tools count their runs, and what a `verify` function sees of the outside."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.play = Play(
            [
                ("look", {"at": "a"}),
                ("put", {"x": 1}),
                ("send", {"to": "anna"}),
                ("pay", {"amount": 5}),
                ("look", {"at": "b"}),
            ],
            [("picky", {"x": 1}), ("broken", {}), ("look", {"at": "c"})],
            "not the report yet",
            [("picky", {"x": 2})],
            [("final_result", {"title": "t", "points": "none"})],
            [("final_result", {"title": "t", "points": [1, 2]})],
        )

        def look(ctx: RunContext[Deps], at: str) -> str:
            return self.ran(f"{ctx.deps.prefix} look {at}")

        async def put(x: int) -> dict[str, int]:
            self.ran("put")
            return {"x": x}

        def send(to: str) -> str:
            return self.ran(f"send {to}")

        async def pay(amount: int) -> str:
            return self.ran(f"pay {amount}")

        def picky(x: int) -> str:
            self.ran(f"picky {x}")
            if x < 2:
                raise ModelRetry("x must be 2")
            return "picked"

        def broken() -> str:
            self.ran("broken")
            raise ToolFailed("it does not work")

        self.agent = Agent(
            self.play.model,
            deps_type=Deps,
            output_type=Report,
            retries=3,
            tools=[
                Tool(look, metadata={"effect": "none"}),
                Tool(put, metadata={"effect": "idempotent"}),
                Tool(send, metadata={"effect": "irreversible"}),
                Tool(pay, metadata={"effect": "irreversible"}),
                Tool(picky, metadata={"effect": "none"}),
                Tool(broken, metadata={"effect": "none"}),
            ],
        )

        @self.agent.output_validator
        def whole(ctx: RunContext[Deps], report: Report) -> Report:
            return report

    def ran(self, what: str) -> str:
        self.witness(what)
        return f"{what} done"

    def verified(self, to: str) -> Any:
        return Done(f"send {to} done") if self.witness.counts[f"send {to}"] else False

    @property
    def workflow(self) -> Workflow:
        return talking(self.agent, deps=Deps("my"), verifiers={"send": self.verified})


EACH_ONCE = Counter(["my look a", "my look b", "my look c", "put", "send anna", "pay 5", "picky 1", "picky 2", "broken"])
LOST = "tool-return:pay=pay 5 done"


class Whole(NamedTuple):
    """A turn that nothing disturbed: its session, and what the model was sent last."""

    session: Session
    sent: list[str]


@pytest.fixture
def whole(engine: Engine, tmp_path: Path) -> Whole:
    world = World(Witness(tmp_path / "undisturbed"))
    handle = engine.start(world.workflow, "go", headless=True)
    report = handle.result(PATIENCE)
    assert report == Report(title="t", points=[1, 2])
    assert world.witness.counts == EACH_ONCE
    assert (world.play.faults, len(world.play.sent)) == ([], 6)
    return Whole(handle.session, world.play.sent[-1])


def carried_on(session: Session, world: World, said: str) -> tuple[Any, int]:
    """The value of a turn that is resumed, headless, until it has one, and how many questions were answered."""
    asked = 0
    for _ in range(6):
        handle = launch.resume_task(session, world.workflow, options=RunOptions(headless=True))
        assert handle.wait(PATIENCE)
        if handle.outcome is not None and handle.outcome.state == "completed":
            return handle.outcome.value, asked
        assert handle.outcome is not None, handle.trouble
        assert (handle.outcome.state, handle.outcome.reason) == ("suspended", "approval"), handle.outcome
        for key, approval in session.state().execution_state.approvals.items():
            if approval.answer is None:
                assert approval.kind == "outcome"
                asked += 1
                answer(session, key, choice=said)
    raise AssertionError("it was never completed")


def settled(events: list[Any], n: int) -> tuple[set[str], set[str]]:
    """What the log says after n events: the calls that have a result, and those that were under way."""
    done, opened = set(), set()
    for event in events[:n]:
        if event.event_type == "ActivityStarted":
            opened.add(event.activity_id)
        elif event.event_type in ("ActivityCompleted", "ActivityFailed"):
            opened.discard(event.activity_id)
            done.add(event.activity_id)
    return done, opened


NAMES = {
    "main/look:1.1": "my look a",
    "main/put:1.2": "put",
    "main/send:1.3": "send anna",
    "main/pay:1.4": "pay 5",
    "main/look:1.5": "my look b",
    "main/picky:2.1": "picky 1",
    "main/broken:2.2": "broken",
    "main/look:2.3": "my look c",
    "main/picky:4.1": "picky 2",
}


def judged(session: Session, whole: Whole, world: World, n: int, said: str) -> None:
    """Resume a turn that was cut after n events and hold it to every promise."""
    events = list(whole.session.events())
    done, opened = settled(events, n)
    value, asked = carried_on(session, world, said)
    assert value == Report(title="t", points=[1, 2])
    expected = Counter({name: 1 for key, name in NAMES.items() if key not in done})
    if "main/pay:1.4" in opened:
        assert asked == 1
        if said == "happened":
            del expected["pay 5"]
    else:
        assert asked == 0
    assert world.witness.counts == expected
    assert world.play.faults == []
    assert session.state() == refolded(session)
    assert session.state().execution_state.active_activities == {}
    if world.play.sent:
        sent = [part for part in world.play.sent[-1] if not part.startswith("user-prompt:=[This turn was stopped")]
        if "main/pay:1.4" in opened and said == "happened":
            sent = [LOST if part.startswith("tool-return:pay=") else part for part in sent]
        assert sent == whole.sent
    answers = [
        b
        for e, b in zip(of_type(session, "MessageAdded"), bodies(session, "MessageAdded"), strict=True)
        if b["role"] == "assistant" and e.activity_id
    ]
    assert len(answers) == 6  # each answer of the model was paid for once
    requests = [e for e in events[:n] if e.event_type == "MessageAdded" and e.activity_id]
    assert len(world.play.sent) == 6 - len(requests)


def places(whole: Whole) -> range:
    """After how many events a started task can be cut off."""
    return range(of_type(whole.session, "TaskStarted")[0].seq, of_type(whole.session, "TaskCompleted")[0].seq)


def test_cut_after_any_event_it_ends_as_if_nothing_had_happened(whole: Whole, tmp_path: Path) -> None:
    for n in places(whole):
        world = World(Witness(tmp_path / f"witness-{n}"))
        judged(cut(whole.session, tmp_path / f"cut-{n}", n), whole, world, n, "run_again")


def test_a_call_that_a_person_says_happened_is_not_made_again_and_the_model_is_told(whole: Whole, tmp_path: Path) -> None:
    events = list(whole.session.events())
    for n in (n for n in places(whole) if "main/pay:1.4" in settled(events, n)[1]):
        world = World(Witness(tmp_path / f"witness-{n}"))
        judged(cut(whole.session, tmp_path / f"cut-{n}", n), whole, world, n, "happened")
        assert LOST not in world.play.sent[-1]
        assert any("had its effect; what it returned is not known" in part for part in world.play.sent[-1])


@pytest.mark.parametrize("result", ["paid by hand", 17, {"receipt": 17}, {"failed": "it is a word"}, ["a"]])
def test_the_model_gets_the_result_that_a_person_knows_of_a_call(whole: Whole, tmp_path: Path, result: Any) -> None:
    n = next(n for n in places(whole) if "main/pay:1.4" in settled(list(whole.session.events()), n)[1])
    world, session = World(Witness(tmp_path / "witness")), cut(whole.session, tmp_path / "cut", n)
    handle = launch.resume_task(session, world.workflow, options=RunOptions(headless=True))
    assert handle.wait(PATIENCE)
    answer(session, "a1", choice="happened", result=result)
    carried_on(session, world, "run_again")
    assert world.witness.counts["pay 5"] == 0
    assert f"tool-return:pay={shown(result)}" in world.play.sent[-1]


@pytest.mark.parametrize("happened", [True, False])
def test_a_call_that_its_verify_function_knows_is_not_made_again(whole: Whole, tmp_path: Path, happened: bool) -> None:
    events = list(whole.session.events())
    for n in (n for n in places(whole) if "main/send:1.3" in settled(events, n)[1]):
        world = World(Witness(tmp_path / f"witness-{n}"))
        if happened:
            world.ran("send anna")
        carried_on(cut(whole.session, tmp_path / f"cut-{n}", n), world, "run_again")
        assert world.witness.counts["send anna"] == 1
        assert world.play.sent[-1].count("tool-return:send=send anna done") == 1


def test_cut_in_the_middle_of_any_event_the_torn_line_counts_for_nothing(whole: Whole, tmp_path: Path) -> None:
    chance = random.Random(3)
    for n in places(whole):
        world = World(Witness(tmp_path / f"witness-{n}"))
        session = cut(whole.session, tmp_path / f"cut-{n}", n, extra=chance.randrange(1, 120))
        judged(session, whole, world, n, chance.choice(["run_again", "happened"]))


def test_cut_again_and_again_while_it_goes_on_it_ends_all_the_same(whole: Whole, tmp_path: Path) -> None:
    """Each execution is cut off anew at a place further on, until one comes to the end."""
    chance = random.Random(5)
    for trial in range(3):
        session, n, round_ = whole.session, places(whole)[0], 0
        while True:
            session = cut(session, tmp_path / f"{trial}-{round_}", n)
            world = World(Witness(tmp_path / f"witness-{trial}-{round_}"))
            value, _ = carried_on(session, world, "run_again")
            assert value == Report(title="t", points=[1, 2])
            assert world.play.faults == []
            events = [e for e in session.events() if e.seq > n]
            found = [e.seq for e in events if e.event_type in ("ActivityStarted", "ActivityCompleted", "MessageAdded")]
            if not found or round_ == 10:
                break
            n, round_ = found[chance.randrange(min(len(found), 12))], round_ + 1
        assert session.state() == refolded(session)
        assert [e.seq for e in session.events()] == list(range(1, session.last_seq() + 1))


def test_a_turn_whose_tool_is_gone_waits_for_it_and_forgets_no_call(whole: Whole, tmp_path: Path) -> None:
    events = list(whole.session.events())
    done = next(e.seq for e in events if e.event_type == "ActivityCompleted" and e.activity_id == "main/send:1.3")
    for n in (done - 1, done):  # under way, and with a result that the model has not got
        world, session = World(Witness(tmp_path / f"witness-{n}")), cut(whole.session, tmp_path / f"cut-{n}", n)
        bare = talking(Agent(world.play.model, output_type=Report))
        handle = launch.resume_task(session, bare, options=RunOptions(headless=True))
        assert handle.wait(PATIENCE)
        assert handle.outcome is not None
        assert (handle.outcome.state, handle.outcome.reason) == ("suspended", "definition")
        assert "it has called look, pay, put, send, not offered here" in handle.outcome.detail
        assert (world.witness.counts, world.play.sent) == ({}, [])
        judged(session, whole, world, n, "run_again")
