"""What becomes of a session: what deleting it would lose, deleting it, and carrying it away as a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ipyagent_lab.routes.base import Handler, route
from ipyagent_lab.shapes import DeleteBody
from ipyagent_sessions.commands.carry import KINDS, WRITERS
from ipyagent_sessions.errors import ControlRefused, LeaseHeld, UsageError
from ipyagent_sessions.exchange import pack
from ipyagent_sessions.exchange.archive import SUFFIX
from ipyagent_sessions.retention import deletion
from ipyagent_sessions.retention.deletion import Loss
from ipyagent_sessions.serving.finding import checked_id
from ipyagent_sessions.serving.problems import TooLarge
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

MAX_EXPORT: Final = 512 * 2**20
_CHUNK: Final = 2**20
ARCHIVE: Final = "archive"


class LossHandler(Handler):
    """GET sessions/{id}/loss"""

    @route("read")
    async def get(self, session_id: str) -> None:
        session = await self.service.session(checked_id(session_id))
        store = await self.service.store()
        await self.reply(await self.service.read(lambda: deletion.loss(store, session)))


class DeleteHandler(Handler):
    """POST sessions/{id}/delete"""

    @route("write")
    async def post(self, session_id: str) -> None:
        asked = self.body(DeleteBody)
        session = await self.service.session(checked_id(session_id))
        store = await self.service.store()
        gone = await self.service.ask(lambda: delete(store, session, asked.events))
        for touched in (session.id, *gone.forks):
            await self.service.settled(touched)
        await self.reply(gone)


class ExportHandler(Handler):
    """GET sessions/{id}/export"""

    @route("read")
    async def get(self, session_id: str) -> None:
        kind = self.arguments.text("kind") or ARCHIVE
        if kind != ARCHIVE and kind not in KINDS:
            raise UsageError(f"there is no export {kind!r}", hint=f"one of {', '.join((ARCHIVE, *KINDS))}")
        session = await self.service.session(checked_id(session_id))
        with tempfile.TemporaryDirectory(prefix="ipyagent-") as folder:
            path = Path(folder) / f"{session.id}{KINDS.get(kind, SUFFIX)}"
            await self.service.ask(lambda: write(session, kind, path))
            self.set_attachment_header(path.name)
            self.set_header("Content-Type", "application/octet-stream")
            self.set_header("Content-Security-Policy", "default-src 'none'; sandbox")
            for chunk in chunks(path):
                self.write(chunk)
                await self.flush()
        await self.finish(set_content_type="application/octet-stream")


def delete(store: Store, session: Session, events: int) -> Loss:
    """Delete a session of which the person knew `events` events.

    Raises ControlRefused when there are more by now, LeaseHeld while a task runs in it or in a fork of it.
    """
    found = deletion.loss(store, session)
    if found.problem:
        raise LeaseHeld(f"{found.problem}; nothing was deleted", hint="pause or cancel it first")
    if found.events != events:
        raise ControlRefused(
            f"session {session.id} has {found.events} events now, not {events}: look again before it is deleted"
        )
    return deletion.delete(store, session)


def write(session: Session, kind: str, path: Path) -> None:
    """Write the session in that form.  Raises TooLarge, DamageError, OSError."""
    if kind == ARCHIVE:
        pack.export(session, path)
    else:
        with open(path, "wb") as file:
            file.writelines(WRITERS[kind](session))
    if path.stat().st_size > MAX_EXPORT:
        raise TooLarge(
            f"the export of {session.id} has {path.stat().st_size} bytes, {MAX_EXPORT} are sent",
            hint=f"in a terminal: ipyagent export {session.id}",
        )


def chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
