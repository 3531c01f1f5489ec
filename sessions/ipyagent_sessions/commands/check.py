"""What this installation has and what is in force."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import psutil

from ipyagent_sessions import config, upgrade
from ipyagent_sessions._version import __version__
from ipyagent_sessions.agent import layers
from ipyagent_sessions.agent.settings import Settings, check_file
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.config import CheckpointPolicy, MemoryPolicy
from ipyagent_sessions.errors import ConfigError, NewerFormat
from ipyagent_sessions.log.lease import uses_soft_lock
from ipyagent_sessions.verify import identity
from ipyagent_sessions.views import formats
from ipyagent_sessions.views.shown import Shown, Table

_LOW: Final = 200_000_000
"""Fewer free bytes are called low."""
_WIDE: Final = 240
"""Columns of a cell of `doctor`: what is wrong with a file is read to its end."""


def files(door: Door) -> list[Path]:
    """The files that settings come from: the user's, then the project's, which goes before it.  Raises ConfigError when
    `IPYAGENT_CONFIG` names none."""
    return [path for path in (config.user_file(os.environ), config.project_file(door.folder)) if path is not None]


def refuse_wrong(door: Door) -> None:
    """Raise ConfigError, naming file and key, when anything in the files of the settings is wrong: nothing is to begin under
    settings that somebody did not mean."""
    for path in files(door):
        check_file(path)


def policy_file(door: Door, block: str = "checkpoint") -> Path | None:
    """The configuration file whose block of that name counts: the project's, else the user's; None when neither has one."""
    return next((path for path in reversed(files(door)) if block in layers.read(path)), None)


def policy_of(door: Door, file: str | None) -> CheckpointPolicy:
    """The checkpoint policy in force.  Raises ConfigError naming file and key, also for what is wrong in other blocks."""
    if file is None:
        refuse_wrong(door)
        path = policy_file(door)
        return CheckpointPolicy() if path is None else config.load(path)
    if not Path(file).is_file():
        raise ConfigError(f"there is no file {file}")
    check_file(Path(file))
    return config.load(Path(file))


def memory_policy_of(door: Door) -> MemoryPolicy:
    """The policy in force for what sessions share.  Raises ConfigError naming file and key."""
    path = policy_file(door, "memory")
    return MemoryPolicy() if path is None else config.load_memory(path)


def settings_files(door: Door) -> dict[str, str]:
    """The sha256 of the files that settings come from, by layer, empty for a layer that has none."""
    found = {"user": config.user_file(os.environ), "project": config.project_file(door.folder)}
    return {layer: hashlib.sha256(path.read_bytes()).hexdigest() if path else "" for layer, path in found.items()}


def show_config(door: Door, file: str | None) -> Shown:
    """The settings in force, where each comes from, and those that have no force here."""
    policy = policy_of(door, file)
    source = file or policy_file(door) or f"defaults; put a checkpoint block into {config.PROJECT_FILE}"
    rows: list[list[Any]] = [
        ["checkpoint: interval", "never by time" if policy.interval_s is None else formats.duration(policy.interval_s)],
        ["checkpoint: events", ", ".join(policy.events) or "none"],
        ["checkpoint: state paths", ", ".join(policy.paths) or "none"],
        ["checkpoint: always", "end of a stage, end of a task, by hand"],
        ["checkpoint: last events", policy.last_events],
    ]
    note = ""
    rows.append(["checkpoint: kept after a task completed", formats.duration(policy.successful_s)])
    rows.append(["checkpoint: kept after one failed or was cancelled", formats.duration(policy.failed_s)])
    kept_s = memory_policy_of(door).kept_s if file is None else config.load_memory(Path(file)).kept_s
    rows.append(["memory: without a time of its own", "for good" if kept_s is None else formats.duration(kept_s)])
    if policy.not_in_force:
        note = "not in force on this installation:\n" + "\n".join(f"  {line}" for line in policy.not_in_force)
    rows = [[what, value, str(source)] for what, value in rows]
    if file is None:
        rows += [list(found) for found in Settings.load(door.folder).explained()]
    return Table(["setting", "value", "from"], rows, note=note)


def doctor(door: Door) -> Table:
    """What works here and what to mend."""
    rows = [
        ["ipyagent", __version__, "ok", ""],
        ["Python", f"{platform.python_version()} ({sys.platform})", "ok", ""],
        *_place(door),
        *_processes(door),
        *_formats(door),
        *_packages(),
        _config(door),
    ]
    return Table(["what", "found", "state", "to do"], rows, width=_WIDE)


def _place(door: Door) -> list[list[str]]:
    """The store and the disk under it."""
    store, root = door.store, door.store.root
    there = next(folder for folder in (root, *root.absolute().parents) if folder.is_dir())
    known = f"none yet at {root}"
    if store.exists():
        known = f"{root} ({f'id {store.id}, ' if store.problem is None else ''}{len(store.session_ids())} sessions)"
    free = psutil.disk_usage(str(there)).free
    room = ("ok", "") if free > _LOW else ("low", "free some space: tasks suspend when the log cannot be written")
    locks = ["the system's", "ok", ""]
    if os.access(there, os.W_OK) and uses_soft_lock(there):
        advice = "this file system has no locks (a network home?); set IPYAGENT_STORE to a local folder"
        locks = ["marker files", "weaker", advice]
    state = _writable(there)
    if store.problem is not None:
        state = ("newer" if isinstance(store.problem, NewerFormat) else "damaged", str(store.problem))
    elif store.exists() and identity.look(store) is not None:
        state = ("damaged", "ipyagent verify says what is wrong with store.json")
    return [["store", known, *state], ["disk", f"{formats.size(free)} free", *room], ["locks", *locks]]


def _processes(door: Door) -> list[list[str]]:
    """What started this process, and whether it is a kernel."""
    parent = psutil.Process().parent()
    known = door.origin.holder.kernel if door.origin.holder else None
    unknown = "none here" if door.namespace is None else "this process; no Jupyter server started it"
    return [
        ["started by", f"{parent.name()} (pid {parent.pid})" if parent else "nobody (an orphan)", "ok", ""],
        ["kernel", known or unknown, "ok", ""],
    ]


def _formats(door: Door) -> list[list[str]]:
    if not door.store.exists() or door.store.problem is not None:
        return []
    if upgrade.is_due(door.store):
        return [["formats", "some files are of an older version", "older", "ipyagent upgrade lists them"]]
    return [["formats", "those that this version writes", "ok", ""]]


def _packages() -> list[list[str]]:
    rows = []
    for name in ("duckdb", "pyarrow", "jupyterlab", "ipykernel"):
        try:
            rows.append([name, metadata.version(name), "ok", ""])
        except metadata.PackageNotFoundError:
            rows.append([name, "not installed", "missing", f"pip install {name}"])
    return rows


def _config(door: Door) -> list[str]:
    try:
        found = ", ".join(map(str, files(door))) or "defaults"
        policy = policy_of(door, None)
    except ConfigError as error:
        return ["config", "nothing starts with these settings", "wrong", str(error)]
    state = "ok" if not policy.not_in_force else "partly in force"
    return ["config", found, state, "; ".join(policy.not_in_force)]


def _writable(root: Path) -> tuple[str, str]:
    return ("ok", "") if os.access(root, os.W_OK) else ("read-only", "set IPYAGENT_STORE to a folder you may write to")
