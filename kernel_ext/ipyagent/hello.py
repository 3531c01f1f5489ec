"""What the extension says when it is loaded: which tasks of this notebook are unfinished, and how to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipyagent import origin

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_MOST = 3


def greet(shell: InteractiveShell) -> None:
    """Print one line for each unfinished task of this notebook, at most three; nothing when there is none.

    A store that cannot be read is told in one line: the notebook loads all the same.
    """
    from ipyagent_sessions.config import store_path
    from ipyagent_sessions.errors import IpyagentError
    from ipyagent_sessions.textsafe import plain, plain_lines

    if not store_path().is_dir():
        return
    try:
        text = found(origin.notebook(shell))
    except (IpyagentError, OSError) as error:
        text = plain(f"ipyagent: {error}", 400)
    if text:
        print(plain_lines(text))


def found(notebook: str | None) -> str:
    """The unfinished tasks of `notebook` (of the store, when no notebook is known) in a person's words."""
    from ipyagent_sessions.lifecycle import ENDED
    from ipyagent_sessions.store import Store
    from ipyagent_sessions.textsafe import plain

    ended = {state.value for state in ENDED}
    unfinished = [
        x
        for x in Store().sessions()
        if x.summary is not None
        and x.summary.state
        and x.summary.state not in ended
        and (notebook is None or x.summary.notebook == notebook)
    ]
    lines = []
    for listed in unfinished[:_MOST]:
        summary = listed.summary
        assert summary is not None
        of = f" of {summary.total}" if summary.total is not None else ""
        how = {
            "lost": f"stopped at activity {summary.done}{of}: the process that ran it is gone",
            "running": f"running at activity {summary.done}{of} in another process"
            + (f", which is silent for {listed.silence:.0f} s" if listed.silence is not None else ""),
            "suspended": f"suspended: {summary.detail or summary.reason}",
            "interrupted": f"interrupted at activity {summary.done}{of}",
            "damaged": f"cannot go on: {listed.problem}",
        }.get(listed.state, listed.state)
        lines.append(plain(f"{summary.title} ({listed.session_id}) {how}", 300))
    if not lines:
        return ""
    more = f"\n  and {len(unfinished) - _MOST} more: %agent ls" if len(unfinished) > _MOST else ""
    shown = "\n  ".join(lines)
    told = f"ipyagent found unfinished work:\n  {shown}{more}"
    stopped = [listed.session_id for listed in unfinished if listed.state not in ("running", "damaged")]
    return f"{told}\nRun its cell again, or: %agent resume {stopped[0]}" if stopped else f"{told}\nLook: %agent status"
