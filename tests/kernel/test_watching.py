"""What a widget hears of its sessions, whatever goes wrong on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipyagent.watching import Watch
from ipyagent_sessions.serving.following import Followed
from ipyagent_sessions.serving.problems import problem_of
from ipyagent_sessions.serving.shapes import Shown
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import wait_until


class Page:
    """Hears what is sent, and can refuse it."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.refused = 0
        self.refuses = False

    def take(self, message: dict[str, Any]) -> None:
        if self.refuses:
            self.refused += 1
            raise BufferError("the channel is full")
        self.heard.append(message)

    def hears(self, kind: str) -> None:
        wait_until(lambda: kind in [message["type"] for message in self.heard], what=f"a {kind}")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def watch(store: Store, page: Page) -> Iterator[Watch]:
    made = Watch(store, page.take, problem_of)
    yield made
    made.stop()


def test_an_error_that_nobody_foresaw_is_told_and_the_next_change_is_shown(
    store: Store, page: Page, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store.create(title="mine")

    def fails(followed: Followed) -> Shown:
        raise ZeroDivisionError("nobody foresaw this")

    with monkeypatch.context() as patch:
        patch.setattr(Followed, "shown", fails)
        watch.look([session.id])
        page.hears("problem")
        assert page.heard[0]["session_id"] == session.id
    session.layout.root.joinpath("note").touch()
    page.hears("card")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_page_that_could_not_be_told_anything_hears_again_when_it_asks_again(store: Store, page: Page, watch: Watch) -> None:
    session = store.create(title="mine")
    page.refuses = True
    watch.look([session.id])
    wait_until(lambda: page.refused, what="a message that was refused")
    page.refuses = False

    def heard() -> bool:
        watch.look([session.id])
        return bool(page.heard)

    wait_until(heard, what="a card")
    assert page.heard[0]["type"] == "card"
