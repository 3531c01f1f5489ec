"""What sessions share: found by another session, safe for several processes, and with a lifetime of its own."""

from __future__ import annotations

import contextlib
import datetime as dt
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent_sessions import cli
from ipyagent_sessions.errors import UPDATE, NewerFormat, NotSerialisable, PersistenceError, UsageError
from ipyagent_sessions.memory.journal import Record, line_of
from ipyagent_sessions.memory.memory import Memory
from ipyagent_sessions.retention import clean, deletion
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, FakeClock, FaultyDisk
from ipyagent_sessions.verify import whole

DAY = 86400.0


@pytest.fixture
def memory(store: Store) -> Memory:
    return store.memory


def again(memory: Memory, clock: FakeClock) -> Memory:
    """The same files as another process sees them."""
    return Memory(memory.folder, clock, FaultyDisk())


def journal(memory: Memory) -> Path:
    return max(memory.folder.glob("journal-*.jsonl"), key=lambda p: int(p.stem.partition("-")[2]))


def test_what_one_puts_another_finds(memory: Memory, clock: FakeClock) -> None:
    other = again(memory, clock)
    memory.put("facts/money", "rate", {"eur": 1.08, "at": dt.date(2026, 1, 1)}, by="s1")
    assert other.get("facts/money", "rate") == {"eur": 1.08, "at": dt.date(2026, 1, 1)}
    other.put("facts/money", "rate", (1, 2))
    assert memory.get("facts/money", "rate") == (1, 2)
    assert memory.delete("facts/money", "rate")
    assert other.get("facts/money", "rate", "none") == "none"
    assert not memory.delete("facts/money", "rate")


def test_nothing_is_written_by_looking(store: Store, memory: Memory) -> None:
    assert memory.get("a", "b") is None
    assert memory.keys() == []
    assert memory.search() == []
    assert not memory.folder.exists()
    assert store.memory is memory


def test_a_namespace_holds_those_below_it_and_no_neighbours(memory: Memory) -> None:
    for namespace in ("a", "a/b", "a/b/c", "ab"):
        memory.put(namespace, "k", namespace)
    assert memory.keys("a") == [("a", "k"), ("a/b", "k"), ("a/b/c", "k")]
    assert [i.value for i in memory.search("a/b")] == ["a/b/c", "a/b"], "newest first"


@pytest.mark.parametrize("namespace", ["", "/", "a//b", "a/", " ", "a\0b", "x" * 301])
def test_what_is_no_namespace_is_refused(memory: Memory, namespace: str) -> None:
    with pytest.raises(UsageError, match="not a namespace"):
        memory.put(namespace, "k", 1)


def test_what_cannot_be_kept_is_refused_and_named(memory: Memory) -> None:
    with pytest.raises(UsageError, match="not a key"):
        memory.put("a", "", 1)
    with pytest.raises(UsageError, match="more than"):
        memory.put("a", "k", "x" * 2_000_000)
    with pytest.raises(NotSerialisable):
        memory.put("a", "k", object())
    assert memory.keys() == []


@pytest.mark.parametrize("given", [None, 5, b"a", ["a"]])
def test_what_is_no_text_names_no_entry(memory: Memory, given: Any) -> None:
    for call in (lambda: memory.put("a", given, 1), lambda: memory.get("a", given), lambda: memory.delete("a", given)):
        with pytest.raises(UsageError, match="is not a key") as told:
            call()
        assert told.value.hint == "a text of 1 to 300 characters"
    for call in (lambda: memory.put(given, "k", 1), lambda: memory.item(given, "k"), lambda: memory.search(given)):
        with pytest.raises(UsageError, match="is not a namespace"):
            call()


@pytest.mark.parametrize("ttl", ["999999999999d", 1e300, "36526d"])
def test_an_entry_is_not_kept_for_longer_than_timestamps_hold(memory: Memory, ttl: str | float) -> None:
    with pytest.raises(UsageError, match="more than 100 years"):
        memory.put("a", "k", 1, ttl=ttl)
    memory.put("a", "k", 1, ttl="36525d")
    assert [item.key for item in memory.entries()] == ["k"]


def test_an_entry_that_ends_later_than_timestamps_hold_is_listed_with_the_last_one(memory: Memory, clock: FakeClock) -> None:
    memory.put("a", "k", 1)
    late = Record(9, "put", "a", "late", msgspec.Raw(b"1"), memory.search()[0].at, expires=1e14)
    with journal(memory).open("ab") as file:
        file.write(line_of(late))
    seen = again(memory, clock)
    assert [(i.key, i.expires) for i in seen.entries("a")] == [("late", "9999-12-31T23:59:59.000Z"), ("k", None)]
    assert seen.get("a", "late") == 1
    assert seen.outlived(1e14) == []


def test_text_is_found_in_keys_and_values_in_any_case(memory: Memory) -> None:
    memory.put("a", "one", {"name": "Grüße", "list": [{"deep": "NEEDLE"}]})
    memory.put("a", "two", 'line\nfeed and "quotes"')
    memory.put("a", "Three", 42)
    assert [i.key for i in memory.search(text="needle")] == ["one"]
    assert [i.key for i in memory.search(text="GRÜSSE")] == ["one"]
    assert [i.key for i in memory.search(text='feed and "q')] == ["two"]
    assert [i.key for i in memory.search(text="three")] == ["Three"]
    assert [i.key for i in memory.search(text="42")] == ["Three"]
    assert memory.search(text="absent") == []


def test_fields_are_compared_by_their_paths(memory: Memory) -> None:
    memory.put("a", "one", {"kind": "fact", "meta": {"n": 1}})
    memory.put("a", "two", {"kind": "fact", "meta": {"n": 2}})
    memory.put("a", "three", "fact")
    assert [i.key for i in memory.search(fields={"kind": "fact", "meta.n": 2})] == ["two"]
    assert memory.search(fields={"meta.absent": None}) == []
    assert len(memory.search(limit=2)) == 2


@pytest.mark.parametrize("asked", [{"text": None}, {"text": 5}, {"fields": {5: 1}}, {"fields": "kind"}, {"fields": ["kind"]}])
def test_a_search_for_what_cannot_be_looked_for_is_refused(memory: Memory, asked: dict[str, Any]) -> None:
    memory.put("a", "k", {"kind": 1})
    with pytest.raises(UsageError, match="is not a "):
        memory.search(**asked)


def test_a_value_that_is_nested_too_deep_is_refused_and_an_old_one_is_listed(
    store: Store, memory: Memory, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    deep: Any = "needle"
    for _ in range(500):
        deep = [deep]
    with pytest.raises(NotSerialisable, match="nested too deeply"):
        memory.put("a", "k", deep)
    memory.put("a", "plain", 1)
    for n, depth in enumerate((500, 980), 3):
        value = msgspec.Raw(b"[" * depth + b'"needle"' + b"]" * depth)
        with journal(memory).open("ab") as file:
            file.write(line_of(Record(n, "put", "a", f"deep{depth}", value, memory.search(text="plain")[0].at)))
    seen = again(memory, clock)
    assert [i.key for i in seen.entries(text="needle")][-1] == "deep500"
    assert cli.main(["--store", str(store.root), "memory"]) == 0
    told = capsys.readouterr().out
    assert "plain" in told
    assert "deep500" in told


def test_an_entry_goes_when_its_time_is_over_and_no_session_with_it(
    memory: Memory, clock: FakeClock, session: Session
) -> None:
    memory.put("a", "short", 1, ttl="1h")
    memory.put("a", "long", 2)
    clock.advance(3599)
    assert memory.get("a", "short") == 1
    clock.advance(1)
    assert memory.get("a", "short") is None
    assert memory.keys() == [("a", "long")]
    assert [(o.namespace, o.key) for o in memory.outlived()] == [("a", "short")]
    clock.advance(400 * DAY)
    assert [o.key for o in memory.outlived(365 * DAY)] == ["long", "short"]
    assert session.state().seq == 1


def test_clean_up_removes_what_has_outlived_for_good_and_on_record(store: Store, clock: FakeClock) -> None:
    store.memory.put("a", "gone", "SECRET", ttl=1)
    store.memory.put("a", "kept", 1)
    clock.advance(2)
    clean.memory(store, store.memory.outlived(), by="user:me")
    assert b"SECRET" not in b"".join(p.read_bytes() for p in store.memory.folder.iterdir())
    assert store.memory.get("a", "kept") == 1
    assert [(e.file, e.by) for e in clean.record(store)] == [("memory/a/gone", "user:me")]
    assert "SECRET" not in (store.root / "gc.jsonl").read_text()


def test_deleting_a_session_leaves_what_it_shared(store: Store, session: Session) -> None:
    store.memory.put("facts", "pi", 3.14, by=session.id)
    deletion.delete(store, session)
    assert Store(store.root).memory.get("facts", "pi") == 3.14


def test_a_write_of_the_same_id_happens_once_also_after_compaction(memory: Memory, clock: FakeClock) -> None:
    assert memory.put("a", "k", 1, write_id="w1")
    assert memory.put("a", "k", 2, write_id="w2")
    assert not memory.put("a", "k", 1, write_id="w1"), "it must not undo what came after it"
    memory.put("a", "x", 1, ttl=1)
    clock.advance(2)
    memory.forget(memory.outlived())
    assert not again(memory, clock).put("a", "k", 1, write_id="w1")
    assert memory.get("a", "k") == 2


def test_it_is_compacted_when_it_is_mostly_past(memory: Memory, clock: FakeClock) -> None:
    for n in range(1100):
        memory.put("a", "k", n)
    assert journal(memory).name != "journal-1.jsonl"
    assert len(list(memory.folder.glob("journal-*"))) == 1
    assert memory.get("a", "k") == again(memory, clock).get("a", "k") == 1099


def test_a_torn_tail_is_set_aside_and_the_rest_is_kept(memory: Memory, clock: FakeClock) -> None:
    memory.put("a", "k", 1)
    with open(journal(memory), "ab") as file:
        file.write(b'{"c":"0011')
    other = again(memory, clock)
    assert other.get("a", "k") == 1
    assert other.problems() == []
    other.put("a", "l", 2)
    assert [i.key for i in memory.search()] == ["l", "k"]
    assert [p.read_bytes() for p in (memory.folder / "damaged").iterdir()] == [b'{"c":"0011']


def test_damage_in_the_middle_is_named_and_outlives_compaction(store: Store, clock: FakeClock) -> None:
    memory = store.memory
    for n in range(3):
        memory.put("a", f"k{n}", n, ttl=n or None)
    path = journal(memory)
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = lines[1].replace(b"k0", b"kx")
    path.write_bytes(b"".join([lines[0], damaged, *lines[2:]]))
    other = again(memory, clock)
    assert [k for _, k in other.keys("a")] == ["k1", "k2"]
    assert other.problems() == [f"{path.name}: a line at byte {len(lines[0])} ({len(damaged) - 1} bytes) is damaged"]
    report = whole.store(Store(store.root, clock=clock))
    assert report.damaged
    assert [f.file for f in report.findings] == [f"memory/{path.name}"]
    clock.advance(1.5)
    other.forget(other.outlived())
    assert damaged in (memory.folder / "damaged" / path.name).read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda line: b'{"k":"' + line[6:],
        lambda line: line[:6] + line[6:14].upper() + line[14:],
        lambda line: line[:14] + b"'," + line[16:],
    ],
)
def test_a_line_counts_only_with_its_checksum_to_the_letter(
    memory: Memory, clock: FakeClock, change: Callable[[bytes], bytes]
) -> None:
    memory.put("a", "k", 1)
    line = line_of(Record(9, "put", "a", "abc", msgspec.Raw(b"1"), memory.search()[0].at))
    assert change(line) != line
    journal(memory).write_bytes(journal(memory).read_bytes() + change(line))
    seen = again(memory, clock)
    assert [key for _, key in seen.keys("a")] == ["k"]
    assert len(seen.problems()) == 1


@pytest.mark.parametrize("seam", ["before journal write", "before journal sync"])
def test_what_a_disk_refuses_was_not_put(memory: Memory, disk: FaultyDisk, clock: FakeClock, seam: str) -> None:
    memory.put("a", "k", 1)
    disk.fail(seam)
    with pytest.raises(PersistenceError, match="nothing was put"):
        memory.put("a", "k", 2)
    disk.short_writes.append(20)
    with pytest.raises(PersistenceError):
        memory.put("a", "k", 3)
    assert memory.get("a", "k") == again(memory, clock).get("a", "k") == 1
    memory.put("a", "k", 4)
    assert again(memory, clock).get("a", "k") == 4


def test_a_newer_format_is_refused_with_the_direction(memory: Memory, clock: FakeClock) -> None:
    memory.put("a", "k", 1)
    journal(memory).write_bytes(line_of(Record(1, "format", value=msgspec.Raw(b"99"))))
    with pytest.raises(NewerFormat, match="format 99") as raised:
        again(memory, clock).get("a", "k")
    assert raised.value.hint == UPDATE


def test_threads_lose_nothing(memory: Memory, clock: FakeClock) -> None:
    def work(number: int) -> None:
        for n in range(20):
            memory.put("t", f"{number}-{n}", n)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(again(memory, clock).keys("t")) == 80


WRITER = """
import sys
from ipyagent_sessions.store import Store
memory = Store(sys.argv[1]).memory
for n in range(100000):
    memory.put("p", f"{sys.argv[2]}-{n % 40}", n)
    print("put", n)
"""


def test_two_processes_and_a_kill_lose_nothing_that_was_acknowledged(store: Store) -> None:
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(WRITER, str(store.root), name)) for name in ("a", "b")]
        last = [0, 0]
        for _ in range(300):
            for i, child in enumerate(children):
                last[i] = int(child.expect("put"))
        for child in children:
            child.kill()
    found = Store(store.root).memory
    assert found.problems() == []
    for name, n in zip("ab", last, strict=True):
        for number in range(max(0, n - 39), n + 1):
            assert found.get("p", f"{name}-{number % 40}") >= number


@given(st.lists(st.tuples(st.sampled_from("pdc"), st.sampled_from("abc"), st.integers()), max_size=30))
def test_it_holds_what_a_dict_would(operations: list[tuple[str, str, int]]) -> None:
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        memory, model = Memory(Path(folder, "memory"), clock, FaultyDisk()), dict[str, int]()
        for operation, key, value in operations:
            if operation == "p":
                memory.put("n", key, value)
                model[key] = value
            elif operation == "d":
                assert memory.delete("n", key) == (model.pop(key, None) is not None)
            else:
                memory.put("n", "expired", 0, ttl=1)
                clock.advance(2)
                memory.forget(memory.outlived())
        for seen in (memory, Memory(Path(folder, "memory"), clock, FaultyDisk())):
            assert {key: seen.get("n", key) for _, key in seen.keys("n")} == model
