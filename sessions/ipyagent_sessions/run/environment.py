"""What a task ran under, so that a resume can say what differs (R101, R140): Python, packages, folder, git revision."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib import metadata
from typing import Any


def snapshot(cwd: str | None = None) -> dict[str, Any]:
    """The environment now.  Takes some tens of milliseconds; `packages` maps names to versions."""
    folder = cwd or os.getcwd()
    packages = {d.metadata["Name"]: d.version for d in metadata.distributions() if d.metadata["Name"]}
    listed = "\n".join(f"{k}=={v}" for k, v in sorted(packages.items()))
    return {
        "python": platform.python_version(), "implementation": platform.python_implementation(), "platform": platform.platform(),
        "cwd": folder, "git": _git(folder), "packages": dict(sorted(packages.items())),
        "packages_sha256": hashlib.sha256(listed.encode()).hexdigest(),
    }


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What changed between two snapshots, one line each."""
    out = [f"{key}: {before.get(key)} -> {now.get(key)}" for key in ("python", "platform", "cwd", "git")
           if before.get(key) != now.get(key)]
    old, new = before.get("packages", {}), now.get("packages", {})
    changed = [f"{n} {old.get(n, 'absent')} -> {new.get(n, 'absent')}" for n in sorted({*old, *new}) if old.get(n) != new.get(n)]
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        out.append(f"packages: {', '.join(changed[:5])}{more}")
    return out


def _git(folder: str) -> str | None:
    """The revision of the repository that `folder` is in, None without one."""
    try:
        done = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
