"""`ipyagent verify` in a terminal: the status says whether something is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.store import Store


@pytest.fixture
def done(terminal: Terminal, folder: Path) -> str:
    """The id of a session whose task waits for an answer."""
    terminal("run", "flows:audit")
    return Store(folder / "store").session_ids()[0]


def test_a_sound_store_gives_status_0(terminal: Terminal, done: str) -> None:
    said = terminal("verify")
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith("checked 1 session, ")
    assert json.loads(terminal("verify", done, "--json").out)["damaged"] is False


def test_damage_gives_status_1_and_is_named_for_people_and_programs(terminal: Terminal, folder: Path, done: str) -> None:
    journal = Store(folder / "store").session(done).layout.journals()[-1].path
    body = bytearray(journal.read_bytes())
    body[70] ^= 1
    journal.write_bytes(body)
    said = terminal("verify", done)
    assert said.status == 1
    assert journal.name in said.out
    told = terminal("verify", "--json")
    assert told.status == 1
    places = [f["place"] for f in json.loads(told.out)["findings"] if f["file"] == journal.name]
    assert any(place.startswith("byte 0 ") for place in places)


def test_what_is_derived_is_repaired(terminal: Terminal, folder: Path, done: str) -> None:
    summary = Store(folder / "store").session(done).layout.summary
    summary.write_text("{}")
    assert terminal("verify").status == 1
    assert terminal("verify", "--repair").status == 0
    assert terminal("verify").status == 0


def test_gc_lists_before_it_removes(terminal: Terminal, folder: Path, done: str) -> None:
    terminal("approve", done)
    terminal("resume", done)
    (folder / "ipyagent.yaml").write_text("checkpoint: {retention: {successful: 0s}}")
    session = Store(folder / "store").session(done)
    appender = session.append(this_process(by="tests"))
    for _ in range(3):
        appender.checkpoint("time_interval")
    appender.close()
    checkpoints = session.layout.checkpoints
    before = sorted(checkpoints.iterdir())
    assert len(before) > 1
    listed = terminal("gc")
    assert (listed.status, listed.err) == (0, "")
    assert "would go" in listed.out
    assert sorted(checkpoints.iterdir()) == before
    assert "removed" in terminal("gc", "--yes").out
    assert len(list(checkpoints.iterdir())) < len(before)
    assert "no checkpoint has outlived" in terminal("gc").out
    assert terminal("verify").status == 0


def test_delete_says_what_is_lost_before_it_does(terminal: Terminal, folder: Path, done: str) -> None:
    said = terminal("delete", done)
    assert (said.status, said.err) == (0, "")
    assert "would delete" in said.out
    assert "1 request" in said.out
    assert Store(folder / "store").session_ids() == [done]
    assert terminal("delete", done, "--yes").out.startswith("deleted")
    assert Store(folder / "store").session_ids() == []
    assert terminal("delete", done).status == 1


def test_what_sessions_share_is_listed_searched_and_forgotten(terminal: Terminal, folder: Path) -> None:
    assert "nothing" in terminal("memory").out
    memory = Store(folder / "store").memory
    memory.put("facts/a", "one", {"text": "find me"}, by="s1")
    memory.put("other", "two", "x", ttl=0)
    said = terminal("memory", "facts", "--search", "FIND")
    assert (said.status, said.err) == (0, "")
    assert "find me" in said.out
    assert "1 would go" in terminal("gc").out
    assert "1 removed" in terminal("gc", "--yes").out
    assert terminal("memory", "facts/a", "--forget", "one").status == 0
    assert terminal("memory", "facts/a", "--forget", "one").status == 1
    assert terminal("memory", "--forget", "one").status == 2


@pytest.mark.parametrize("words", [("verify",), ("gc",), ("gc", "--yes"), ("memory",), ("sql", "select count(*) from events")])
def test_a_store_that_does_not_exist_is_not_made_by_looking(terminal: Terminal, folder: Path, words: tuple[str, ...]) -> None:
    terminal("--store", "nowhere", *words)
    assert not (folder / "nowhere").exists()


def test_the_doctor_shows_a_store_whose_id_is_not_that_of_its_sessions(terminal: Terminal, folder: Path, done: str) -> None:
    (folder / "store" / "store.json").write_text('{"id":"zz","format":1}')
    (row,) = (row for row in json.loads(terminal("doctor", "--json").out) if row["what"] == "store")
    assert (row["state"], row["to do"]) == ("damaged", "ipyagent verify says what is wrong with store.json")
    assert "in replay" in terminal("resume", done).err
    assert terminal("verify", "--repair").status == 0
    assert terminal("approve", done).status == 0


def test_without_store_json_a_task_goes_on(terminal: Terminal, folder: Path, done: str) -> None:
    (folder / "store" / "store.json").unlink()
    assert terminal("verify").status == 1
    assert not (folder / "store" / "store.json").exists()
    assert terminal("approve", done).status == 0
    assert terminal("resume", done).status == 0


@pytest.mark.parametrize(
    ("body", "state", "told"),
    [
        ("x", "damaged", "store.json is damaged"),
        ('{"id":"x","format":99}', "newer", "has format 99, this version reads up to"),
    ],
)
def test_the_doctor_sees_a_store_that_nobody_else_can_open(
    terminal: Terminal, folder: Path, done: str, body: str, state: str, told: str
) -> None:
    (folder / "store" / "store.json").write_text(body)
    assert terminal("ls").status == 1
    said = terminal("doctor", "--json")
    (row,) = (row for row in json.loads(said.out) if row["what"] == "store")
    assert (said.status, row["state"], told in row["to do"]) == (0, state, True)
    assert (folder / "store" / "store.json").read_text() == body
