"""What is done to a store beside the running of tasks, and a process that is killed at a seam of it.

python -m tests.kill.sides STORE SESSION SEAM
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ipyagent_sessions.exchange.pack import export
from ipyagent_sessions.exchange.unpack import bring_in
from ipyagent_sessions.history import building
from ipyagent_sessions.retention.deletion import delete
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk


def exporting(store: Store, session_id: str) -> None:
    export(store.session(session_id), store.root.with_name("archive"))


def importing(store: Store, session_id: str) -> None:
    """Into the store beside, from the archive that is there."""
    bring_in(Store(store.root.with_name("other"), disk=store.disk), store.root.with_name("given"))


def deleting(store: Store, session_id: str) -> None:
    if session_id in store.session_ids():
        delete(store, store.session(session_id))


def sharing(store: Store, session_id: str) -> None:
    store.memory.put("notes", "one", 1)


def caching(store: Store, session_id: str) -> None:
    building.step(store)


WORKS: Final[dict[str, Callable[[Store, str], None]]] = {
    "export": exporting,
    "import": importing,
    "delete": deleting,
    "memory": sharing,
    "cache": caching,
}
"""By the word in their seams."""


def main(root: str, session_id: str, seam: str) -> None:
    disk = FaultyDisk()
    disk.kill(seam)
    WORKS[seam.split()[1]](Store(Path(root), disk=disk), session_id)


if __name__ == "__main__":
    main(*sys.argv[1:])
