"""The Jupyter Server part of ipyagent: routes, one live socket a page, and the sweeper that notices lost tasks.

It needs no kernel: everything is read from the files of the store, and what a person asks goes through the inbox of the
session as at every other door.  `docs/server-api.md` is its contract with the front end.  What is told of one
session, and how a request is checked, is the engine's (`ipyagent_sessions.serving`): a widget without a server tells the same.

Rooms, each importing only those above it:

    shapes     what goes over the wire; `typescript` writes it down
    reading    files of one session -> one row of the list
    index      the rows in memory: filter, sort, pages
    shelf      the sessions that pages look at, their states kept at hand
    pace       many changes, few pushes
    audience   the pages that listen, and what they are told
    herald     notices: who is told that a task needs somebody, is done, has failed
    rescuer    lost tasks that go on by themselves, each in a process of its own
    watcher    which sessions have changed
    sweeper    what nobody else does: lost holders, expired approvals, forgotten requests
    service    all of these for one store
    routes     HTTP; `stream` is the socket
    app        the extension that Jupyter Server loads
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ipyagent_sessions._version import __version__

_BUNDLE = Path(__file__).parent / "labextension"


def _jupyter_server_extension_points() -> list[dict[str, Any]]:  # pyright: ignore[reportUnusedFunction]  # Jupyter calls it
    """What Jupyter Server loads (imported only then)."""
    from ipyagent_lab.app import IpyagentLab

    return [{"module": "ipyagent_lab", "app": IpyagentLab}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:  # pyright: ignore[reportUnusedFunction]  # Jupyter calls it
    """Where the prebuilt front end is; nothing in a checkout where it was not built."""
    if not (_BUNDLE / "package.json").is_file():
        return []
    return [{"src": "labextension", "dest": "@ipyagent/lab"}]


__all__ = ["__version__"]
