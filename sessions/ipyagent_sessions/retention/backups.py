"""What upgrades replaced, for as long as somebody may want to go back."""

from __future__ import annotations

from msgspec import Struct

from ipyagent_sessions import upgrade
from ipyagent_sessions.events import seconds_of
from ipyagent_sessions.retention import workspaces
from ipyagent_sessions.retention.expiry import DAY
from ipyagent_sessions.store import Store


class Backup(Struct):
    """A folder of replaced files that has outlived its time.  `size` is bytes."""

    file: str
    size: int
    why: str


def outlived(store: Store) -> list[Backup]:
    """The backups of upgrades that ended long enough ago.  One whose upgrade was cut short is kept: the next run needs it."""
    found = []
    for folder in upgrade.backups(store):
        record = upgrade.read(folder)
        if record is None or record.ended is None:
            continue
        days = (store.clock.now() - seconds_of(record.ended)) / DAY
        if days > upgrade.KEPT_DAYS:
            why = f"the upgrade ended {days:.0f} days ago, and backups are kept {upgrade.KEPT_DAYS}"
            found.append(Backup(f"{upgrade.BACKUPS}/{folder.name}", workspaces.size_of(folder), why))
    return found
