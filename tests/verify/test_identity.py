"""The id of a store is derived again from the sessions that were made in it; looking at it writes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ipyagent_sessions.exchange import pack, unpack
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeIds, activities
from ipyagent_sessions.verify import whole
from ipyagent_sessions.verify.finding import Finding


def of_store(store: Store, *, repair: bool = False) -> Finding:
    (found,) = (f for f in whole.store(Store(store.root), repair=repair).findings if f.file == "store.json")
    return found


def lose(store: Store) -> Path:
    path = store.root / "store.json"
    path.unlink()
    return path


@pytest.fixture
def three(store: Store, session: Session, me: Holder) -> list[Session]:
    for made in (found := [session, store.create(), store.create()]):
        appender = made.append(me)
        activities(appender, 2)
        appender.close(rest=True)
    return found


@pytest.fixture
def brought(store: Store, three: list[Session], tmp_path: Path) -> Store:
    """Another store, into which all three were imported."""
    ids = FakeIds()
    for _ in range(60):
        ids()
    other = Store(tmp_path / "other", ids=ids)
    for number, session in enumerate(three):
        pack.export(session, tmp_path / f"{number}.zip")
        unpack.bring_in(other, tmp_path / f"{number}.zip")
    return other


def test_a_lost_id_is_named_and_not_written_until_it_is_repaired(store: Store, three: list[Session]) -> None:
    known, path = store.id, lose(store)
    for _ in range(2):
        found = of_store(store)
        assert (found.level, found.repaired) == ("damage", False)
        assert known in found.what
        assert not path.exists(), "verify looks and writes nothing"
    assert of_store(store, repair=True).repaired
    assert json.loads(path.read_bytes())["id"] == known
    assert whole.store(Store(store.root)).damaged is False


def test_a_changed_id_is_named_and_repaired(store: Store, three: list[Session]) -> None:
    known = store.id
    (store.root / "store.json").write_text(json.dumps({"id": f"x{known[1:]}", "format": 1}))
    assert f"'x{known[1:]}'" in of_store(store).what
    assert Store(store.root).session(three[0].id).in_replay
    of_store(store, repair=True)
    assert Store(store.root).id == known
    assert Store(store.root).session(three[0].id).native


def test_without_its_file_a_store_goes_on_as_what_its_sessions_say(store: Store, three: list[Session], me: Holder) -> None:
    known, path = store.id, lose(store)
    again = Store(store.root, ids=FakeIds())
    again.session(three[0].id).append(me).close()
    assert again.id == known
    fresh = Store(store.root, ids=iter(["newone", "another"]).__next__)
    made = fresh.create()
    assert made.native
    assert json.loads(path.read_bytes())["id"] == known


def test_what_was_imported_does_not_say_whose_store_this_is(brought: Store, store: Store, me: Holder) -> None:
    lose(brought)
    found = of_store(brought)
    assert store.id not in found.what
    assert of_store(brought, repair=True).repaired
    again = Store(brought.root)
    assert again.id not in (store.id, "elsewhere")
    assert not any(again.session(name).native for name in again.session_ids())


def test_a_fork_of_an_import_outweighs_the_imports(brought: Store, me: Holder) -> None:
    known = brought.id
    brought.session(min(brought.session_ids())).fork().append(me).close()
    lose(brought)
    of_store(brought, repair=True)
    assert Store(brought.root).id == known


def test_two_ids_that_are_named_as_often_are_told_and_not_chosen_from(
    store: Store, three: list[Session], tmp_path: Path
) -> None:
    other = Store(tmp_path / "third", ids=iter(["thirda", "thirdstore", *(f"third{n}" for n in range(9))]).__next__)
    for made in (other.create(), other.create(), other.create()):
        shutil.copytree(made.layout.root, store.sessions_folder / made.id)
    path = lose(store)
    found = of_store(store, repair=True)
    assert not found.repaired
    assert found.todo == "restore the file from a copy"
    assert not path.exists()


def test_a_few_sessions_that_were_copied_in_are_no_reason_to_doubt_the_store(store: Store, three: list[Session]) -> None:
    header = three[0].layout.header
    header.write_text(json.dumps({**json.loads(header.read_text()), "store": "another"}))
    assert [f for f in whole.store(Store(store.root)).findings if f.file == "store.json"] == []
