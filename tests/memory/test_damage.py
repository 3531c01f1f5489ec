"""Damage to what sessions share is found with its place and told, and no clean-up makes it final."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ipyagent_sessions import cli
from ipyagent_sessions.memory.memory import Memory
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, FaultyDisk
from ipyagent_sessions.verify import whole


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def without(number: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(b"".join(line for i, line in enumerate(lines(path)) if i != number))


def all_damaged(path: Path) -> None:
    path.write_bytes(b"".join(line.replace(b'"n":', b'"m":') for line in lines(path)))


def stray(path: Path) -> None:
    path.with_name("journal-7.jsonl").write_bytes(b"")


DAMAGE: dict[str, tuple[Callable[[Path], object], str, list[str]]] = {
    "emptied": (lambda path: path.write_bytes(b""), "nothing in it verifies (0 bytes at byte 0)", []),
    "zeros": (lambda path: path.write_bytes(b"\0" * 300), "nothing in it verifies (300 bytes at byte 0)", []),
    "a line is gone": (without(2), "1 line is missing before byte ", ["k0", "k2", "k3"]),
    "the format is gone": (
        without(0),
        "its beginning, the line of the format, is missing at byte 0",
        ["k0", "k1", "k2", "k3"],
    ),
    "every line": (all_damaged, "is damaged", []),
    "a stray": (stray, "nothing in it verifies, an older file is read", ["k0", "k1", "k2", "k3"]),
}


@pytest.fixture
def kept(store: Store) -> Path:
    """The file of four entries."""
    for n in range(4):
        store.memory.put("a", f"k{n}", n)
    return store.memory.folder / "journal-1.jsonl"


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_told(store: Store, kept: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    damage, told, left = DAMAGE[name]
    damage(kept)
    for seen in (store, Store(store.root)):  # also where it was read before
        found = [f for f in whole.store(seen).findings if f.level == "damage"]
        assert found
        assert all(f.file.startswith("memory/journal-") for f in found)
        assert told in found[0].what
        assert [key for _, key in seen.memory.keys("a")] == left
    assert cli.main(["--store", str(store.root), "memory"]) == 0
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("name", DAMAGE)
def test_no_write_and_no_clean_up_ends_the_evidence(store: Store, clock: FakeClock, kept: Path, name: str) -> None:
    damage, _, left = DAMAGE[name]
    damage(kept)
    before = [path.read_bytes() for path in kept.parent.glob("journal-*")]
    memory = Memory(kept.parent, clock, FaultyDisk())
    memory.put("a", "short", 1, ttl=1)
    assert memory.problems()
    clock.advance(2)
    memory.forget(memory.outlived())
    again = Memory(kept.parent, clock, FaultyDisk())
    assert again.problems() == []
    assert [key for _, key in again.keys("a")] == left
    after = b"".join(path.read_bytes() for path in again.set_aside())
    assert all(body in after for body in before)
    notes = [f.file for f in whole.store(Store(store.root)).findings if f.level == "note"]
    assert notes == [f"memory/damaged/{path.name}" for path in again.set_aside()]


def test_a_line_that_a_compaction_wrote_is_missed_too(store: Store, clock: FakeClock, kept: Path) -> None:
    store.memory.put("a", "short", 1, ttl=1)
    clock.advance(2)
    store.memory.forget(store.memory.outlived())
    store.memory.put("a", "later", 1)
    compacted = kept.with_name("journal-2.jsonl")
    assert Store(store.root).memory.problems() == []
    whole_file = lines(compacted)
    for number in range(1, len(whole_file) - 1):
        compacted.write_bytes(b"".join(line for i, line in enumerate(whole_file) if i != number))
        (problem,) = Store(store.root).memory.problems()
        assert problem.startswith("journal-2.jsonl: 1 line is missing before byte ")


def test_what_fits_nothing_is_told_from_an_empty_store(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> str:
        assert cli.main(["--store", str(store.root), "memory", *words]) == 0
        return capsys.readouterr().out

    store.create()
    assert "sessions share nothing here yet" in told("--search", "zzz")
    store.memory.put("a", "k", 1)
    for words in (["--search", "zzz"], ["nope/x"]):
        assert told(*words).strip() == "of what sessions share, nothing fits"
