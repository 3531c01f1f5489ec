"""What a task ran under and what it left behind, so that a resume can say what differs (R055, R081, R101, R140)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any, Final

from ipyagent_sessions.run import resources

_INSTALLED: Final = re.compile(r"(.+?)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info")


def snapshot(cwd: str | None = None) -> dict[str, Any]:
    """The environment now.  Takes some milliseconds; `packages` maps normalised names (PEP 503) to versions."""
    folder = cwd or os.getcwd()
    packages = _packages()
    listed = "\n".join(f"{k}=={v}" for k, v in sorted(packages.items()))
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "implementation": platform.python_implementation(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",  # platform.platform() starts a process
        "cpus": resources.cpus(),
        "memory": resources.allowed(),
        "cwd": folder,
        "git": _git(folder),
        "packages": dict(sorted(packages.items())),
        "packages_sha256": hashlib.sha256(listed.encode()).hexdigest(),
    }


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What changed between two snapshots, one line each."""
    out = [
        f"{key}: {before.get(key)} -> {now.get(key)}"
        for key in ("python", "platform", "cpus", "memory", "cwd", "git")
        if before.get(key) != now.get(key)
    ]
    old, new = before.get("packages", {}), now.get("packages", {})
    changed = [
        f"{n} {old.get(n, 'absent')} -> {new.get(n, 'absent')}" for n in sorted({*old, *new}) if old.get(n) != new.get(n)
    ]
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        out.append(f"packages: {', '.join(changed[:5])}{more}")
    return out


def _packages() -> dict[str, str]:
    """What is installed, by the names of the metadata folders: parsing what is in them would take most of a resume's time, and
    names alone are listed faster than entries are scanned."""
    found: dict[str, str] = {}
    for folder in reversed(sys.path):  # what comes first is what an import finds
        with contextlib.suppress(OSError):
            named = [_INSTALLED.fullmatch(name) for name in os.listdir(folder or ".") if name.endswith("-info")]
            found.update({m[1].replace("_", "-").replace(".", "-").lower(): m[2] for m in named if m})
    return found


def file_differences(files: dict[str, dict[str, Any]], folder: Path | None = None) -> list[str]:
    """The recorded artefacts that are missing or have other content now, one line each.

    `files` maps paths, from `folder` or the working folder, to what the state holds of them; one without a sha256 is only
    looked for.
    """
    out = []
    for path, known in sorted(files.items()):
        try:
            with open(Path(folder or "") / path, "rb") as file:
                now = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        except OSError as error:
            out.append(
                f"{path} is missing" if isinstance(error, FileNotFoundError) else f"{path} cannot be read: {error.strerror}"
            )
            continue
        checksum = str(known.get("checksum") or "")
        if checksum.startswith("sha256:") and checksum != now:
            out.append(f"{path} has changed since it was written")
    return out


def _git(folder: str) -> str | None:
    """The revision of the repository that `folder` is in, None without one.

    Read from its files (gitrepository-layout(5)): starting git would take longer than all the rest.
    """
    for place in (Path(folder), *Path(folder).parents):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            home = place / ".git"
            if home.is_file():  # of a worktree or a submodule
                home = place / home.read_text("utf-8").removeprefix("gitdir:").strip()
            return _revision(home, (home / "HEAD").read_text("utf-8").strip())
    return None


def _revision(home: Path, head: str) -> str | None:
    """What a HEAD stands for: itself, or the revision of the branch that it names; None while that has none."""
    if not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    shared = home
    with contextlib.suppress(FileNotFoundError):
        shared = home / (home / "commondir").read_text("utf-8").strip()
    with contextlib.suppress(FileNotFoundError):
        return (shared / name).read_text("utf-8").strip()
    with contextlib.suppress(FileNotFoundError):
        for line in (shared / "packed-refs").read_text("utf-8").splitlines():
            revision, _, named = line.partition(" ")
            if named == name:
                return revision
    return None
