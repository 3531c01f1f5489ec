"""Checkpoints: verified snapshots of the folded state (R053-R055, R061-R069).

    checkpoints/<seq>.json.zst = {"format", "seq", "label", "trigger", "at", "sha256", "base",
                                  "state" or "patch", "last_events"}

The log is the truth; a snapshot only saves folding it again, and each can be deleted.  `seq` is that of the
`CheckpointCreated` event, which is durable before the file appears, so no snapshot points past the last durable event.
`sha256` is that of the whole state; a snapshot that does not match, does not decompress or is of a newer form is refused and
the next older one is used.

A snapshot is whole or holds the difference to a whole one (`base`), never a difference to a difference: any snapshot is
restored from at most two files, and pruning keeps the bases of what it keeps.  Artefacts appear by reference (path, checksum,
size) in the state.  The newest snapshot is the one with the highest seq; no clock is asked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard
from msgspec import Raw, Struct

from ipyagent_sessions import state as states
from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import UPDATE, DamageError, NewerFormat
from ipyagent_sessions.events import NULL, Event
from ipyagent_sessions.log.files import Disk, make_folder
from ipyagent_sessions.log.layout import FORMAT, Layout
from ipyagent_sessions.payloads import CheckpointCreated
from ipyagent_sessions.state import State

KEEP_UNNAMED: Final = 3
_NAME: Final = re.compile(r"(\d+)\.json\.zst")
_FULL_ABOVE: Final = 0.4
_MAX_BYTES: Final = 2**31


class Snapshot(Struct, omit_defaults=True):
    """The content of a checkpoint file."""

    format: int
    seq: int
    label: str
    trigger: str
    at: str
    sha256: str
    form: int = 0
    base: int | None = None
    state: Raw = NULL
    patch: Any = None
    last_events: list[Raw] = []


class Kept(Struct, frozen=True):
    """What of a snapshot file decides whether it stays: whether somebody wants it by name, and what it builds on."""

    named: bool
    base: int | None


Known = dict[int, Kept]
"""By seq what a writer has seen of the files, which never change under their names: so each is opened once.  What has gone is
forgotten at the next prune."""


class Info(Struct):
    """One line of a listing: `size` in bytes, `complete` after verification."""

    seq: int
    label: str
    trigger: str
    at: str
    size: int
    base: int | None
    complete: bool
    problem: str = ""


def sequence(layout: Layout) -> list[int]:
    """The seqs that have a snapshot file, ascending."""
    if not layout.checkpoints.is_dir():
        return []
    return sorted(int(m[1]) for p in layout.checkpoints.iterdir() if (m := _NAME.fullmatch(p.name)))


def path_of(layout: Layout, seq: int) -> Path:
    return layout.checkpoints / f"{seq}.json.zst"


def write(
    layout: Layout,
    seq: int,
    body: bytes,
    *,
    label: str,
    trigger: str,
    at: str,
    last_events: list[bytes],
    disk: Disk,
    known: Known | None = None,
) -> None:
    """Store the encoded state `body` as the snapshot of `seq`, as a difference when that is much smaller; it is `known` then.

    Raises OSError; nothing is visible then.
    """
    make_folder(layout.checkpoints)
    snapshot = Snapshot(
        FORMAT,
        seq,
        label,
        trigger,
        at,
        hashlib.sha256(body).hexdigest(),
        states.FORM,
        last_events=[Raw(line) for line in last_events],
    )
    base = _newest_full(layout, seq, known or {})
    # a state that has grown by more than that much cannot be a small difference: nothing is decoded to find out
    if base is not None and len(body) - len(memoryview(base[1])) < _FULL_ABOVE * len(body):
        patch = difference(base[1], Raw(body))
        if len(msgspec.json.encode(patch)) < _FULL_ABOVE * len(body):
            snapshot.base, snapshot.patch = base[0], patch
    if snapshot.base is None:
        snapshot.state = Raw(body)
    packed = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(msgspec.json.encode(snapshot))
    disk.write_whole(path_of(layout, seq), packed, what="checkpoint")
    if known is not None:
        known[seq] = _kept(snapshot)


def write_again(layout: Layout, event: Event, body: bytes, recent: Iterable[bytes], disk: Disk) -> None:
    """Make the snapshot of the `CheckpointCreated` event anew: `body` is the encoded state after it, `recent` the canonical
    events before it.  Raises OSError, and DamageError when that event is no checkpoint or what was written reads otherwise."""
    try:
        told = from_json(event.payload, CheckpointCreated)
    except msgspec.DecodeError as error:
        raise DamageError(f"event {event.seq} of session {layout.root.name} is no checkpoint: {error}") from error
    write(
        layout,
        event.seq,
        body,
        label=told.label,
        trigger=told.trigger,
        at=event.timestamp,
        last_events=list(recent),
        disk=disk,
    )
    if states.encode(load(layout, event.seq)[0]) != body:
        raise DamageError(f"checkpoint {event.seq} of session {layout.root.name} does not read as it was written")


def _newest_full(layout: Layout, before: int, known: Known) -> tuple[int, Raw] | None:
    for seq in reversed(sequence(layout)):
        if seq >= before or (seq in known and known[seq].base is not None):
            continue
        try:
            found = _open(layout, seq)
        except (DamageError, NewerFormat):
            continue
        if found.base is None and found.form == states.FORM:
            return seq, found.state
    return None


def _open(layout: Layout, seq: int) -> Snapshot:
    path = path_of(layout, seq)
    try:
        body = zstandard.ZstdDecompressor().decompress(path.read_bytes(), max_output_size=_MAX_BYTES)
        head = from_json(body, _Head)
        if head.format > FORMAT:
            raise NewerFormat(
                f"checkpoint {seq} was written by a newer version (format {head.format}, this one reads {FORMAT})",
                hint=f"an older checkpoint is used meanwhile; {UPDATE}",
            )
        return from_json(body, Snapshot)
    except (OSError, zstandard.ZstdError, msgspec.DecodeError) as error:
        raise DamageError(
            f"checkpoint {seq} cannot be read ({type(error).__name__})",
            hint="it can be deleted: the state is folded from the log",
        ) from error


class _Head(Struct):
    format: int


def load(layout: Layout, seq: int) -> tuple[State, Snapshot]:
    """The state of the snapshot at `seq`.  Raises DamageError or NewerFormat when it must not be used."""
    snapshot = _open(layout, seq)
    if snapshot.form != states.FORM:
        raise NewerFormat(
            f"checkpoint {seq} has form {snapshot.form} of the state, this version has {states.FORM}",
            hint="the state is folded from the log",
        )
    if snapshot.base is None:
        body = bytes(memoryview(snapshot.state))
    else:
        base = _open(layout, snapshot.base)
        if base.base is not None:
            raise DamageError(f"checkpoint {seq} builds on {snapshot.base}, which is not a whole one")
        body = _patched(seq, base.state, snapshot.patch)
    if hashlib.sha256(body).hexdigest() != snapshot.sha256:
        raise DamageError(
            f"checkpoint {seq} does not match its checksum", hint="it can be deleted: the state is folded from the log"
        )
    try:
        return states.decode(body), snapshot
    except msgspec.DecodeError as error:
        raise DamageError(f"checkpoint {seq} does not hold a state: {error}") from error


def _patched(seq: int, base: Raw, patch: Any) -> bytes:
    try:
        return msgspec.json.encode(patched(base, patch))
    except msgspec.DecodeError as error:
        raise DamageError(f"checkpoint {seq} does not hold a state: {error}") from error


def form_of(layout: Layout, seq: int) -> int | None:
    """The form of the state that the snapshot at `seq` holds; None when it cannot be read, or is of a newer version."""
    try:
        return _open(layout, seq).form
    except (DamageError, NewerFormat):
        return None


def newest(layout: Layout, until: int) -> tuple[State | None, list[int]]:
    """The state of the newest usable snapshot at or before `until`, and the seqs of newer ones that were refused."""
    refused: list[int] = []
    for seq in reversed(sequence(layout)):
        if seq > until:
            continue
        try:
            return load(layout, seq)[0], refused
        except (DamageError, NewerFormat):
            refused.append(seq)
    return None, refused


def listing(layout: Layout) -> list[Info]:
    """Every snapshot file, verified."""
    out = []
    for seq in sequence(layout):
        size = path_of(layout, seq).lstat().st_size
        try:
            snapshot = load(layout, seq)[1]
        except (DamageError, NewerFormat) as error:
            out.append(Info(seq, "", "", "", size, None, False, error.message))
        else:
            out.append(Info(seq, snapshot.label, snapshot.trigger, snapshot.at, size, snapshot.base, True))
    return out


def _kept(snapshot: Snapshot) -> Kept:
    return Kept(bool(snapshot.label) or snapshot.trigger in ("manual", "end"), snapshot.base)


def prune(layout: Layout, known: Known) -> list[int]:
    """Remove unnamed snapshots but the newest few, never the base of one that stays.  Returns the removed seqs.

    Only files that are not `known` are opened; another process may have removed some meanwhile."""
    there = sequence(layout)
    kept_unnamed, keep, bases = 0, set[int](), set[int]()
    for seq in reversed(there):
        if seq not in known:
            try:
                known[seq] = _kept(_open(layout, seq))
            except (DamageError, NewerFormat):
                keep.add(seq)
                continue
        found = known[seq]
        if found.named or kept_unnamed < KEEP_UNNAMED:
            keep.add(seq)
            kept_unnamed += not found.named
            if found.base is not None:
                bases.add(found.base)
    gone = [seq for seq in there if seq not in keep | bases]
    for seq in known.keys() - (set(there) - set(gone)):
        del known[seq]
    for seq in reversed(gone):  # a crash in between leaves no snapshot whose base, which is older, has gone
        path_of(layout, seq).unlink(missing_ok=True)
    return gone


def clean_unfinished(layout: Layout) -> None:
    """Remove temporary files that a crash left behind, but not those of the inbox, which others may be writing."""
    for folder in (layout.root, layout.checkpoints, layout.events, layout.blobs, layout.damaged):
        if folder.is_dir():
            for path in folder.iterdir():
                if path.suffix == ".tmp":
                    path.unlink(missing_ok=True)


def difference(old: Any, new: Any) -> Any:
    """What turns `old` into `new`: {"s": keys set, "d": keys dropped, "r": keys changed inside, "k": key order} for objects,
    {"a": items appended} for lists that grew, {"v": value} for the rest, None when they are equal.

    Equal means the same JSON: 1, 1.0 and true differ, 0.0 and -0.0 do, and so does the order of keys.  What is given as Raw is
    decoded only where it differs."""
    if isinstance(old, Raw) and isinstance(new, Raw):
        return None if bytes(old) == bytes(new) else difference(_opened(old), _opened(new))
    if isinstance(old, dict) and isinstance(new, dict):
        patch: dict[str, Any] = {}
        for key, value in new.items():
            if key not in old:
                patch.setdefault("s", {})[key] = value
            elif (inner := difference(old[key], value)) is not None:
                patch.setdefault("r", {})[key] = inner
        dropped = [key for key in old if key not in new]
        if dropped:
            patch["d"] = dropped
        kept = [key for key in old if key in new] + list(patch.get("s", ()))
        if kept != list(new):
            patch["k"] = list(new)
        return patch or None
    if isinstance(old, list) and isinstance(new, list) and len(old) <= len(new):
        if all(difference(a, b) is None for a, b in zip(old, new, strict=False)):
            return {"a": new[len(old) :]} if len(new) > len(old) else None
        return {"v": new}
    return None if type(old) is type(new) and repr(old) == repr(new) else {"v": new}


def _opened(raw: Raw) -> Any:
    """The value of a JSON text, those in an object or a list as Raw."""
    kind: Any = {b"{": dict[str, Raw], b"[": list[Raw]}.get(bytes(memoryview(raw)[:1]), Any)
    return from_json(raw, kind)


def patched(old: Any, patch: Any) -> Any:
    """`old` with a `difference` applied.  What is given as Raw is decoded only where it changes."""
    if patch is None:
        return old
    if "v" in patch:
        return patch["v"]
    if isinstance(old, Raw):
        old = _opened(old)
    if "a" in patch:
        return [*old, *patch["a"]]
    out = {key: value for key, value in old.items() if key not in patch.get("d", ())}
    for key, inner in patch.get("r", {}).items():
        out[key] = patched(out[key], inner)
    out.update(patch.get("s", {}))
    return {key: out[key] for key in patch["k"]} if "k" in patch else out
