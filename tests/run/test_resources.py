"""Memory and disk are watched: an alarm before they run out, and a loss that they caused is told as one (R012, R014, R135)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest
from tests.run.harness import PATIENCE, Engine, Gate, bodies

from ipyagent_sessions.log import live
from ipyagent_sessions.run import environment, resources
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.run.resources import Room, Watch
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FakeClock, wait_until

GB = 10**9
here = resources.room
"""What there is on this machine; the other tests have plenty."""
PLENTY = Room(2 * GB, 10 * GB, 500 * GB, 1000 * GB)


def memory(used: float) -> Room:
    return PLENTY._replace(memory_used=int(used * GB))


def free(megabytes: int, total: int = 1000 * GB) -> Room:
    return PLENTY._replace(disk_free=megabytes * 10**6, disk_total=total)


def kinds(watch: Watch, *rooms: Room) -> list[list[str]]:
    return [[alarm.kind for alarm in watch.look(room)] for room in rooms]


def test_an_alarm_comes_once_and_again_only_after_it_has_eased() -> None:
    assert kinds(Watch(), *map(memory, (8.9, 9.0, 9.5, 8.7, 9.1, 8.0, 9.2))) == [[], ["memory"], [], [], [], [], ["memory"]]
    assert kinds(Watch(), *map(free, (2000, 1000, 900, 1100, 1000, 2000, 800))) == [[], ["disk"], [], [], [], [], ["disk"]]


def test_little_disk_means_a_part_of_a_small_one_and_a_gibibyte_of_a_large_one() -> None:
    assert not free(50, 2 * GB).disk_short
    assert free(20, 2 * GB).disk_short
    assert not free(5000, 4000 * GB).disk_short


def test_the_alarm_says_how_much_and_what_next() -> None:
    (said,) = Watch().look(memory(9.6))
    assert said.text.startswith("96% of the memory is in use (9.6 of 10.0 GB)")
    assert said.text.endswith("resume where there is more")
    (said,) = Watch().look(free(12))
    assert said.text.startswith("only 12 MB of the disk are free")


@pytest.mark.parametrize(
    ("line", "place", "names", "cached"),
    [
        ("0::/user/job", "user/job", ("memory.max", "memory.current"), "inactive_file"),
        ("4:memory:/user/job", "memory/user/job", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_inactive_file"),
        ("0::/seen/from/outside", "", ("memory.max", "memory.current"), "inactive_file"),  # as in a container
    ],
)
def test_the_limit_of_a_container_counts_and_not_the_memory_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, place: str, names: tuple[str, str], cached: str
) -> None:
    group = tmp_path / "groups" / place
    group.mkdir(parents=True)
    (group / names[0]).write_text("300000000\n")
    (group / names[1]).write_text("290000000\n")
    (group / "memory.stat").write_text(f"anon 1\n{cached} 40000000\n")
    (tmp_path / "own").write_text(f"3:cpuset:/\n{line}\n")
    monkeypatch.setattr(resources, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(resources, "_OWN", tmp_path / "own")
    found = here(tmp_path)
    assert (found.memory_used, found.memory_total) == (250_000_000, 300_000_000)
    (group / names[0]).write_text("max\n")
    assert here(tmp_path).memory_total != 300_000_000


def test_a_resume_under_another_limit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R012: what may be used counts, which is not what the machine has."""
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups" / "memory.max").write_text("300000000\n")
    (tmp_path / "groups" / "memory.current").write_text("1\n")
    (tmp_path / "groups" / "memory.stat").write_text("anon 1\n")
    (tmp_path / "own").write_text("0::/\n")
    before = environment.snapshot(str(tmp_path))
    monkeypatch.setattr(resources, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(resources, "_OWN", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    now = environment.snapshot(str(tmp_path))
    assert environment.differences({**before, "cpus": 2}, now) == [
        "cpus: 2 -> 1",
        f"memory: {before['memory']} -> 300000000",
    ]


@pytest.fixture
def flow(gate: Gate) -> Workflow:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        await ctx.run(gate.passing)
        return "done"

    return flow


def test_a_running_task_logs_the_alarm(engine: Engine, gate: Gate, flow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "room", lambda folder: memory(9.5))
    handle = engine.start(flow)
    wait_until(lambda: bool(bodies(handle.session, "AlarmRaised")), timeout=PATIENCE, what="the alarm")
    gate.open()
    assert handle.result(PATIENCE) == "done"
    assert [a["kind"] for a in bodies(handle.session, "AlarmRaised")] == ["memory"]


def test_a_disk_that_cannot_be_asked_is_an_alarm_and_stops_no_task(
    engine: Engine, gate: Gate, flow: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> Room:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(resources, "room", refuse)
    handle = engine.start(flow)
    wait_until(lambda: bool(bodies(handle.session, "AlarmRaised")), timeout=PATIENCE, what="the alarm")
    gate.open()
    assert handle.result(PATIENCE) == "done"
    assert "Stale file handle" in bodies(handle.session, "AlarmRaised")[0]["text"]


@pytest.mark.parametrize(
    ("room", "kills", "cause", "said"),
    [
        (memory(9.5), (3, 3), "resources", "95% of the memory was in use then"),
        (memory(6), (3, 5), "resources", "the system has killed 2 processes for lack of memory"),
        (memory(3), (3, 4), "worker_lost", "the system has killed 1 process for lack of memory, perhaps this one"),
        (memory(6), (3, 3), "worker_lost", "its last sign of life was"),
        (memory(6), (None, None), "worker_lost", "its last sign of life was"),
        (free(1), (3, 3), "worker_lost", "the disk was nearly full"),
    ],
)
def test_a_loss_tells_what_its_last_sign_of_life_and_the_killers_count_say(
    engine: Engine,
    gate: Gate,
    flow: Workflow,
    monkeypatch: pytest.MonkeyPatch,
    room: Room,
    kills: tuple[int | None, int | None],
    cause: str,
    said: str,
) -> None:
    monkeypatch.setattr(resources, "room", lambda folder: room)
    monkeypatch.setattr(resources, "kills", lambda: kills[0])
    handle = engine.start(flow)
    gate.reached()
    wait_until(lambda: live.read_live(handle.session.layout) is not None, timeout=PATIENCE, what="a sign of life")
    session = engine.crash(handle)
    monkeypatch.setattr(resources, "kills", lambda: kills[1])
    gate.open()
    assert engine.resume(session, flow).result(PATIENCE) == "done"
    (told,) = bodies(session, "RecoveryCompleted")
    assert told["cause"] == cause
    assert said in told["steps"]["detect"]


@pytest.mark.parametrize("effect", ["none", "idempotent"])
def test_the_work_that_is_done_again_is_told_in_seconds(
    engine: Engine, gate: Gate, clock: FakeClock, effect: Literal["none", "idempotent"]
) -> None:
    """Of an effect-free activity not even the start is on disk when it is cut off."""

    @workflow(default_effect=effect)
    async def flow(ctx: Context) -> str:
        await ctx.run(gate.passing)
        return "done"

    handle = engine.start(flow)
    gate.reached()
    clock.advance(90)
    wait_until(lambda: _heard(handle.session) >= clock.now(), timeout=PATIENCE, what="a sign of life after that")
    last_word = handle.session.layout.live.read_bytes()
    session = engine.crash(handle)
    session.layout.live.write_bytes(last_word)  # a killed process has no time for another
    gate.open()
    assert engine.resume(session, flow).result(PATIENCE) == "done"
    (told,) = bodies(session, "RecoveryCompleted")
    assert (told["lost_work_s"], told["repeated"]) == (90, ["main/passing#1"])
    assert "1 open activity runs again (90.0 s of work)" in told["sentence"]
    (row,) = engine.store.sql("SELECT lost_work_s FROM recoveries").rows()
    assert row["lost_work_s"] == 90


def _heard(session: Session) -> float:
    known = live.read_live(session.layout)
    return known.heartbeat if known is not None else 0.0
