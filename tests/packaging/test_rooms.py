"""The list of files at the head of a room is whole."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import ipyagent_sessions

ENTRY = re.compile(r"^ *(\w+(?:, \w+)*) {2,}\S", re.MULTILINE)
"""A line of a list: one file or several, and behind at least two spaces what they are."""


def listed() -> dict[str, list[str]]:
    """The rooms of the engine whose docstring lists files, with the names in the list."""
    rooms = [found.name for found in pkgutil.walk_packages(ipyagent_sessions.__path__, "ipyagent_sessions.") if found.ispkg]
    lists = {room: ENTRY.findall(importlib.import_module(room).__doc__ or "") for room in rooms}
    return {room: [name for line in lines for name in line.split(", ")] for room, lines in lists.items() if lines}


@pytest.mark.parametrize(("room", "names"), listed().items())
def test_a_room_lists_all_its_files_once_and_none_that_is_gone(room: str, names: list[str]) -> None:
    assert sorted(names) == sorted(found.name for found in pkgutil.iter_modules(importlib.import_module(room).__path__))


def test_the_lists_are_found() -> None:
    assert {"ipyagent_sessions.log", "ipyagent_sessions.run", "ipyagent_sessions.exchange"} <= set(listed())
