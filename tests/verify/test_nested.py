"""A file that holds JSON nested deeper than can be read costs what it holds, as any other damage does."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipyagent_sessions import cli
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import activities

DEEP = b'{"format":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
OPEN = b'{"x":' + b"[" * 2000
COMMANDS = (
    ["ls"],
    ["verify"],
    ["verify", "--repair"],
    ["sql", "SELECT count(*) FROM events"],
    ["gc"],
    ["doctor"],
    ["upgrade"],
)


@pytest.fixture
def used(store: Store, session: Session, me: Holder) -> Session:
    appender = session.append(me)
    activities(appender, 5)
    appender.checkpoint("manual", "one")
    appender.close(rest=True)
    return session


def run(store: Store, *words: str) -> int:
    return cli.main(["--store", str(store.root), *words])


@pytest.mark.parametrize("body", [DEEP, OPEN], ids=["deep", "open"])
@pytest.mark.parametrize("name", ["summary.json", "live.json", "holder.json", "session.json"])
def test_a_file_of_a_session_ends_no_command(
    store: Store, used: Session, name: str, body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    store.create(title="beside")
    (used.layout.root / name).write_bytes(body)
    for words in (*COMMANDS, ["status", used.id], ["log", used.id], ["fork", used.id], ["delete", used.id]):
        run(store, *words)  # what is not foreseen is raised
    capsys.readouterr()
    assert run(store, "ls", "--all") == 0
    assert "beside" in capsys.readouterr().out
    if name == "session.json":
        assert run(store, "verify") == 1
        assert "session.json" in capsys.readouterr().out


@pytest.mark.parametrize("body", [DEEP, OPEN], ids=["deep", "open"])
@pytest.mark.parametrize("name", ["gc.json", "history/manifest.json", "history/glance.json"])
def test_a_file_of_the_store_ends_no_command(store: Store, used: Session, name: str, body: bytes) -> None:
    path = store.root / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(body)
    for words in COMMANDS:
        assert run(store, *words) == 0, words


@pytest.mark.parametrize("body", [DEEP, OPEN], ids=["deep", "open"])
def test_a_damaged_store_file_is_named(store: Store, used: Session, body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path(store.root, "store.json").write_bytes(body)
    for words in COMMANDS:
        status, told = run(store, *words), capsys.readouterr()
        assert (status, words) == (0 if words == ["doctor"] else 1, words)
        assert "store.json is damaged" in (told.out if words == ["doctor"] else told.err), words
