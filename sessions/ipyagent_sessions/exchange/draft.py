"""What an import is about to add to a store, and the moment in which it appears."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.log import lease
from ipyagent_sessions.log.files import make_folder
from ipyagent_sessions.log.layout import Layout
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store


def appear(store: Store, draft: Path, session_id: str) -> None:
    """Let a prepared folder be seen as that session.  Raises FileExistsError when another import was first, OSError."""
    path = store.sessions_folder / session_id
    try:
        store.disk.publish(draft, path, what="import")
    except OSError as error:
        if draft.exists() and path.exists():
            raise FileExistsError(errno.EEXIST, "it is here already", str(path)) from error
        raise


class Draft:
    """A hidden folder for a session that is not here, or for what is to be added to the one that is `here`."""

    def __init__(self, session_id: str, store: Store, here: Session | None) -> None:
        self.session_id = session_id
        self.here = here
        self.end = here.last_seq() if here is not None else 0
        self.layout = Layout(store.sessions_folder / f".{store.ids()}")  # swept when this process dies
        self.layout.root.mkdir()

    def discard(self) -> None:
        """Remove what was not published."""
        shutil.rmtree(self.layout.root, ignore_errors=True)

    def publish(self, store: Store) -> int:
        """Let it be seen; returns how many events were added to the session that is here.

        Raises LeaseHeld, UsageError, and FileExistsError when another import was first.
        """
        if self.here is None:
            appear(store, self.layout.root, self.session_id)
            return 0
        layout = self.here.layout
        with lease.held(layout, "import", now=store.clock.now(), disk=store.disk):
            if self.here.last_seq() != self.end or layout.epoch():
                raise UsageError(f"session {self.session_id} was changed meanwhile", hint="import it once more")
            return self._add(layout, store)

    def _add(self, layout: Layout, store: Store) -> int:
        """Blobs before the events that name them, and these in order: a crash in between leaves a shorter session."""
        segments = self.layout.segments()
        for folder in (layout.blobs, layout.events):
            make_folder(folder)
        for path in sorted(self.layout.blobs.iterdir()) if self.layout.blobs.is_dir() else ():
            if not (layout.blobs / path.name).exists():
                store.disk.publish(path, layout.blobs / path.name, what="import")
        for segment in segments:
            store.disk.publish(segment.path, layout.events / segment.path.name, what="import")
        with contextlib.suppress(OSError):
            store.disk.publish(self.layout.summary, layout.summary, what="import")
        os.utime(layout.root)  # so that the query cache looks again
        os.utime(store.sessions_folder)
        return segments[-1].last - self.end
