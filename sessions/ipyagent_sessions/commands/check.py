"""What this installation has and what is in force."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from ipyagent_sessions import config, upgrade
from ipyagent_sessions._version import __version__
from ipyagent_sessions.agent import layers
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.config import CheckpointPolicy, MemoryPolicy
from ipyagent_sessions.errors import ConfigError
from ipyagent_sessions.log.lease import uses_soft_lock
from ipyagent_sessions.views import formats
from ipyagent_sessions.views.shown import Shown, Table


def policy_file(door: Door, block: str = "checkpoint") -> Path | None:
    """The configuration file whose block of that name counts: the project's, else the user's; None when neither has one."""
    for path in (config.project_file(door.folder), config.user_file(os.environ)):
        if path is not None and block in layers.read(path):
            return path
    return None


def policy_of(door: Door, file: str | None) -> CheckpointPolicy:
    """The checkpoint policy in force.  Raises ConfigError naming file and key."""
    path = Path(file) if file else policy_file(door)
    if path is None:
        return CheckpointPolicy()
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    return config.load(path)


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
        ["checkpoint: interval", formats.duration(policy.interval_s) if policy.interval_s else "never by time"],
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
    store, root = door.store, door.store.root
    there = next(folder for folder in (root, *root.absolute().parents) if folder.is_dir())
    free = psutil.disk_usage(str(there)).free
    soft = os.access(there, os.W_OK) and uses_soft_lock(there)
    known = f"{root} (id {store.id}, {len(store.session_ids())} sessions)" if store.exists() else f"none yet at {root}"
    process = psutil.Process()
    parent = process.parent()
    rows = [
        ["ipyagent", __version__, "ok", ""],
        ["Python", f"{platform.python_version()} ({sys.platform})", "ok", ""],
        ["store", known, *_writable(there)],
        [
            "disk",
            f"{formats.size(free)} free",
            *(("ok", "") if free > 200_000_000 else ("low", "free some space: tasks suspend when the log cannot be written")),
        ],
        [
            "locks",
            "marker files" if soft else "the system's",
            *(
                ("weaker", "this file system has no locks (a network home?); set IPYAGENT_STORE to a local folder")
                if soft
                else ("ok", "")
            ),
        ],
        ["started by", f"{parent.name()} (pid {parent.pid})" if parent else "nobody (an orphan)", "ok", ""],
        ["kernel", door.origin.holder.kernel if door.origin.holder and door.origin.holder.kernel else "none here", "ok", ""],
    ]
    if store.exists():
        due = upgrade.is_due(store)
        found = "some files are of an older version" if due else "those that this version writes"
        rows.append(["formats", found, *(("older", "ipyagent upgrade lists them") if due else ("ok", ""))])
    for name in ("duckdb", "pyarrow", "jupyterlab", "ipykernel"):
        try:
            rows.append([name, metadata.version(name), "ok", ""])
        except metadata.PackageNotFoundError:
            rows.append([name, "not installed", "missing", f"pip install {name}"])
    try:
        policy = policy_of(door, None)
        rows.append(
            [
                "config",
                str(policy_file(door) or "defaults"),
                "ok" if not policy.not_in_force else "partly in force",
                "; ".join(policy.not_in_force),
            ]
        )
    except ConfigError as error:
        rows.append(["config", str(policy_file(door)), "wrong", str(error)])
    return Table(["what", "found", "state", "to do"], rows)


def _writable(root: Path) -> tuple[str, str]:
    return ("ok", "") if os.access(root, os.W_OK) else ("read-only", "set IPYAGENT_STORE to a folder you may write to")
