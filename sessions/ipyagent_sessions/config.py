"""Configuration: where the store and the files of the settings are, and when checkpoints are taken.

The checkpoint block of the source documents (B section 4.3) loads unchanged.  An unknown key is an error that names its path.
A setting that has no effect on this installation is accepted, and reported by `not_in_force` (DESIGN section 11, point 6).
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from ipyagent_sessions.errors import ConfigError

_Policy = TypeVar("_Policy")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EVENTS: Final = {
    "activity_completed": "ActivityCompleted",
    "activity_failed": "ActivityFailed",
    "file_written": "FileWritten",
    "external_api_called": "external_api_called",
    "code_generated": "CodeGenerated",
    "test_executed": "TestExecuted",
    "approval_resolved": "ApprovalResolved",
    "error_occurred": "ErrorOccurred",
}
SECTIONS: Final = ("checkpoint", "memory", "model", "models", "mcp", "permissions", "budget", "tools", "secrets")
"""The top keys of a configuration file: when checkpoints are taken, and the settings of agents (`agent.sections`)."""
_LAYERS: Final = ("business_state", "execution_state", "system_state")
_NEVER: Final = "without time_interval among the triggers none is taken by time"
PROJECT_FILE: Final = "ipyagent.yaml"
"""Its name in a folder.  It may loosen permissions, so no tool of an agent may write it."""
VARIABLE: Final = "IPYAGENT_CONFIG"


def seconds(value: str | float, where: str) -> float:
    """A duration in seconds: a number, or text such as 500ms, 60s, 5m, 2h, 7d.  Raises ConfigError naming `where`."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max:
        return float(value)
    match = _DURATION.fullmatch(str(value).strip())
    length = float(match[1]) * _UNITS[match[2] or "s"] if match else math.inf
    if length == math.inf:
        raise ConfigError(f"{where}: {value!r} is not a duration", hint="write it as 60s, 5m, 2h or 7d")
    return length


LAST_EVENTS: Final = 100
"""So many events before it a checkpoint holds, where nobody says otherwise."""


class CheckpointPolicy(Struct, frozen=True):
    """When checkpoints are taken and what they carry.  `interval_s` is wall time in seconds; None means never by time.

    `events` are event types, or `external_api_called` for a completed activity with an effect.  `paths` are dotted paths into
    the state whose change takes a checkpoint.
    """

    interval_s: float | None = 300.0
    events: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    last_events: int = LAST_EVENTS
    successful_s: float = 7 * 86400.0
    failed_s: float = 30 * 86400.0
    not_in_force: tuple[str, ...] = ()


class MemoryPolicy(Struct, frozen=True):
    """How long what sessions share is kept that has no time of its own; None means for good (R036, R037)."""

    kept_s: float | None = None


def memory_policy(document: Any) -> MemoryPolicy:
    """The policy of a parsed YAML document with the key `memory`.  Raises ConfigError naming the key."""
    root = mapping(document, "(top)", {*SECTIONS})
    block = mapping(root.get("memory", {}), "memory", {"retention"})
    kept = block.get("retention")
    return MemoryPolicy(None if kept is None else seconds(kept, "memory.retention"))


def checkpoint_policy(document: Any) -> CheckpointPolicy:
    """The policy of a parsed YAML document with the key `checkpoint`.

    Raises ConfigError with the path of the first key or value that is not known.
    """
    root = mapping(document, "(top)", {*SECTIONS})
    block = mapping(root.get("checkpoint", {}), "checkpoint", {"triggers", "include", "storage", "retention"})
    interval, events, paths = _triggers(block.get("triggers"))
    ignored: list[str] = []
    last_events = _include(block.get("include"), ignored)
    _storage(block.get("storage"), ignored)
    retention = mapping(block.get("retention", {}), "checkpoint.retention", {"successful", "failed"})
    return CheckpointPolicy(
        interval,
        tuple(events),
        tuple(paths),
        last_events,
        seconds(retention.get("successful", "7d"), "checkpoint.retention.successful"),
        seconds(retention.get("failed", "30d"), "checkpoint.retention.failed"),
        tuple(ignored),
    )


def _triggers(listed: Any) -> tuple[float | None, list[str], list[str]]:
    if listed is None:
        return 300.0, [], []
    interval: float | None = None
    events: list[str] = []
    paths: list[str] = []
    for i, trigger in enumerate(sequence(listed, "checkpoint.triggers")):
        where = f"checkpoint.triggers[{i}]"
        kind = mapping(trigger, where, {"type", "interval", "events", "paths"}).get("type")
        allowed = {"time_interval": {"type", "interval"}, "event": {"type", "events"}, "state_change": {"type", "paths"}}
        if not isinstance(kind, str) or kind not in allowed:
            raise ConfigError(f"{where}.type: {kind!r} is not known", hint="time_interval, event or state_change")
        mapping(trigger, where, allowed[kind])
        if kind == "time_interval":
            if interval is not None:
                raise ConfigError(f"{where}: a second time_interval", hint="keep one of them")
            interval = _interval(trigger.get("interval", "5m"), f"{where}.interval")
        elif kind == "event":
            for j, name in enumerate(_some(trigger, "events", where, "activity_completed")):
                if not isinstance(name, str) or name not in _EVENTS:
                    raise ConfigError(f"{where}.events[{j}]: {name!r} is not known", hint=", ".join(sorted(_EVENTS)))
                events.append(_EVENTS[name])
        else:
            for j, path in enumerate(_some(trigger, "paths", where, "business_state.current_goal")):
                if str(path).partition(".")[0] not in _LAYERS:
                    raise ConfigError(f"{where}.paths[{j}]: {path!r} is in none of the layers", hint=", ".join(_LAYERS))
                paths.append(str(path))
    return interval, events, paths


def _interval(value: Any, where: str) -> float:
    interval = seconds(value, where)
    if not interval:
        raise ConfigError(f"{where}: {value!r} is no time between two checkpoints", hint=f"write it as 5m; {_NEVER}")
    return interval


def _some(trigger: dict[str, Any], key: str, where: str, such: str) -> list[Any]:
    """A list without which a trigger would do nothing."""
    listed = sequence(trigger.get(key, []), f"{where}.{key}")
    if not listed:
        raise ConfigError(f"{where}.{key}: names nothing, so nothing is triggered", hint=f"for example [{such}]")
    return listed


def _include(listed: Any, ignored: list[str]) -> int:
    last = LAST_EVENTS
    for i, item in enumerate(sequence([] if listed is None else listed, "checkpoint.include")):
        where = f"checkpoint.include[{i}]"
        entry = mapping(item, where, {"full_state", "event_history", "generated_artifacts"})
        whole = entry.get("full_state", True)
        if not isinstance(whole, bool):
            raise ConfigError(f"{where}.full_state: {whole!r} is not known", hint="write true")
        if not whole:
            ignored.append(f"{where}.full_state: false (a checkpoint always holds the full state)")
        if "event_history" in entry:
            match = re.fullmatch(r"last_([0-9]{1,9})", str(entry["event_history"]))
            if match is None or int(match[1]) > 1000:
                raise ConfigError(
                    f"{where}.event_history: {entry['event_history']!r} is not known", hint="last_N with N up to 1000"
                )
            last = int(match[1])
        if entry.get("generated_artifacts", "references") != "references":
            raise ConfigError(f"{where}.generated_artifacts: only references can be kept", hint="write references")
    return last


def _storage(block: Any, ignored: list[str]) -> None:
    storage = mapping({} if block is None else block, "checkpoint.storage", {"type", "backend", "replication"})
    for key in ("type", "backend"):
        where, named = f"checkpoint.storage.{key}", storage.get(key, "local")
        if not isinstance(named, str):
            raise ConfigError(f"{where}: must be a text, not {type(named).__name__}", hint="write local, or leave it out")
        if named != "local":
            ignored.append(f"{where}: {named} (files go to the store's folder)")
    copies = storage.get("replication", 1)
    if not isinstance(copies, int) or isinstance(copies, bool) or copies < 1:
        raise ConfigError(f"checkpoint.storage.replication: {copies!r} is not a number of copies", hint="write 1 or more")
    if copies > 1:
        ignored.append(f"checkpoint.storage.replication: {copies} (one copy is kept)")


def mapping(value: Any, where: str, allowed: set[str]) -> dict[str, Any]:
    """`value` as a mapping with no other keys than `allowed`.  Raises ConfigError naming `where`."""
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a mapping, not {type(value).__name__}")
    for key in value:
        if key not in allowed:
            raise ConfigError(f"{where}.{key}: unknown key", hint=f"known here: {', '.join(sorted(allowed))}")
    return value


def sequence(value: Any, where: str) -> list[Any]:
    """`value` as a list.  Raises ConfigError naming `where`."""
    if not isinstance(value, list):
        raise ConfigError(f"{where}: must be a list, not {type(value).__name__}")
    return value


def load(path: Path) -> CheckpointPolicy:
    """The checkpoint policy of a YAML file.  Raises ConfigError naming file, line and key."""
    return _load(path, checkpoint_policy)


def load_memory(path: Path) -> MemoryPolicy:
    """The policy of a YAML file for what sessions share.  Raises ConfigError naming file, line and key."""
    return _load(path, memory_policy)


def _load(path: Path, policy_of: Callable[[Any], _Policy]) -> _Policy:
    document = read_yaml(path)
    with naming(path):
        return policy_of({} if document is None else document)


def read_yaml(path: Path) -> Any:
    """What a YAML file holds, None for an empty one.  Raises ConfigError in one line, with the file and the place in it."""
    import yaml

    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: cannot be read: it is no file", hint="rename it, and put a file of settings there")
        loader = yaml.SafeLoader(path.read_text("utf-8-sig"))
        node = loader.get_single_node()
        _refuse_twice(path, node)
        return None if node is None else loader.construct_document(node)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", hint="it must be a text file in UTF-8") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{path}: not valid YAML: {where}{error.problem}", hint="mend it there") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply to be read", hint="look for brackets that are not closed") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none, a number of thousands of digits
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}", hint="put a text in quotes") from error


def _refuse_twice(path: Path, top: Any) -> None:
    """Raise ConfigError for a key that stands twice in a mapping: YAML would let the first go without a word."""
    seen, left = set[int](), [top]
    while left:
        node = left.pop()
        if id(node) in seen or not isinstance(getattr(node, "value", None), list):  # an alias is the node that it names
            continue
        seen.add(id(node))
        lines: dict[tuple[str, str], int] = {}
        for part in node.value:
            key, value = part if isinstance(part, tuple) else (None, part)
            left += [key, value]
            if key is None or not isinstance(key.value, str):
                continue
            mark, name = key.start_mark, (key.tag, key.value)
            if name in lines:
                where = f"line {mark.line + 1}, column {mark.column + 1}"
                raise ConfigError(
                    f"{path}: {where}: {key.value[:60]!r} stands there again", hint=f"it is in line {lines[name]} already"
                )
            lines[name] = mark.line + 1


@contextlib.contextmanager
def naming(path: Path) -> Generator[None, None, None]:
    """Put the file before the message of a ConfigError from inside."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error


def store_path() -> Path:
    """The store's folder: `IPYAGENT_STORE`, or `ipyagent` in Jupyter's data folder (computed as Jupyter does)."""
    chosen = os.environ.get("IPYAGENT_STORE")
    if chosen:
        return Path(chosen).expanduser()
    return _jupyter_data() / "ipyagent"


def _jupyter_data() -> Path:
    chosen = os.environ.get("JUPYTER_DATA_DIR")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    if os.environ.get("JUPYTER_PLATFORM_DIRS", "").lower() in ("1", "true", "yes"):
        return Path(platformdirs.user_data_dir("jupyter", appauthor=False))
    home = Path.home()
    if os.name == "nt":
        return Path(os.environ.get("APPDATA", home / ".jupyter")) / "jupyter"
    if (home / "Library").is_dir() and os.uname().sysname == "Darwin":
        return home / "Library" / "Jupyter"
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "jupyter"


def user_file(environ: Mapping[str, str]) -> Path | None:
    """The user's file, if there is one.  Raises ConfigError when `IPYAGENT_CONFIG` names a file that does not exist."""
    chosen = environ.get(VARIABLE)
    if chosen:
        path = Path(chosen).expanduser()
        if not path.is_file():
            raise ConfigError(f"{VARIABLE} names {path}, which is not a file", hint=f"create it, or unset {VARIABLE}")
        return path
    import platformdirs

    path = platformdirs.user_config_path("ipyagent", appauthor=False) / "config.yaml"
    return path if _stands(path) else None


def _stands(path: Path) -> bool:
    """Whether anything is at `path`: what cannot be read as settings is an error, not the same as none."""
    return path.exists() or path.is_symlink()


def project_file(folder: Path) -> Path | None:
    """The nearest `ipyagent.yaml`: in `folder` or, inside a git checkout, in a folder above it up to the checkout's root.

    Outside a checkout nothing above `folder` is read: a file that somebody left in /tmp must not set permissions.
    """
    folder = folder.resolve()
    ways = [folder, *folder.parents]
    top = next((i for i, place in enumerate(ways) if (place / ".git").exists()), 0)
    return next((place / PROJECT_FILE for place in ways[: top + 1] if _stands(place / PROJECT_FILE)), None)


def settings_files(folder: Path) -> list[Path]:
    """Where settings that permit something stand, or would count if they were put there: no tool writes them."""
    found = [project_file(folder), user_file(os.environ), folder.resolve() / PROJECT_FILE]
    return [path for path in found if path is not None]
