"""Where a command comes from: which notebook, which cell, which kernel, and whether somebody can answer."""

from __future__ import annotations

import contextlib
import getpass
import http.client
import json
import os
import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_CONNECTION: Final = re.compile(r"kernel-(.+)\.json")
_TIMEOUT_S: Final = 0.5


def kernel_id() -> str | None:
    """The kernel's id, the same after a restart; None outside a kernel that a server started."""
    from ipykernel.connect import get_connection_file
    from traitlets.config import MultipleInstanceError

    try:
        match = _CONNECTION.fullmatch(Path(get_connection_file()).name)
    except (RuntimeError, MultipleInstanceError):  # the latter in a plain IPython, whose application is another one
        return None
    return match[1] if match else None


def notebook(shell: InteractiveShell) -> str | None:
    """The notebook's path: as the server knows it now, else as it was when the kernel started; None when nobody says.

    The environment variable is never updated when a notebook is renamed, so the server is asked first.
    """
    return _from_server() or os.environ.get("JPY_SESSION_NAME") or shell.user_ns.get("__vsc_ipynb_file__")


def _from_server() -> str | None:
    """Ask the server that started this kernel; any trouble means that it does not know.

    Directly: its token is nobody else's business, not a proxy's and not that of an address it might point to.
    """
    kernel, parent = kernel_id(), os.environ.get("JPY_PARENT_PID")
    if kernel is None or parent is None:
        return None
    from jupyter_core.paths import jupyter_runtime_dir

    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        info = json.loads((Path(jupyter_runtime_dir()) / f"jpserver-{parent}.json").read_text())
        request = urllib.request.Request(f"{info['url']}api/sessions")
        request.add_unredirected_header("Authorization", f"token {info['token']}")
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=_TIMEOUT_S) as answer:
            for session in json.load(answer):
                if session["kernel"]["id"] == kernel and session["type"] == "notebook":
                    return str(Path(info["root_dir"]) / session["path"])
    return None


def parent(shell: InteractiveShell) -> dict[str, Any]:
    """The request that the running cell came with; empty outside a kernel."""
    get: Any = getattr(shell, "get_parent", None)
    return dict(get() or {}) if get is not None else {}


def cell_id(shell: InteractiveShell) -> str | None:
    """The id of the running cell, when the front end sends it."""
    found = parent(shell).get("metadata", {}).get("cellId")
    return str(found) if found else None


def is_headless(shell: InteractiveShell) -> bool:
    """Whether nobody can answer: nbclient, papermill and nbval send requests that do not allow input."""
    return parent(shell).get("content", {}).get("allow_stdin") is False


def actor() -> str:
    """Who gives commands here."""
    try:
        return f"user:{getpass.getuser()}@notebook"
    except (KeyError, OSError):
        return "user:somebody@notebook"
