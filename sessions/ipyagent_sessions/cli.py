"""`ipyagent` in a terminal: the same commands as `%agent`, beside a busy kernel or a dead one."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import io
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from ipyagent_sessions import events
from ipyagent_sessions.commands import parser, supervise
from ipyagent_sessions.commands.dispatch import perform
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.commands.health import Judged
from ipyagent_sessions.commands.start import Ended
from ipyagent_sessions.errors import IpyagentError, UsageError, refused_by_disk
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.run import outage
from ipyagent_sessions.run.launch import Origin
from ipyagent_sessions.run.worker import TaskHandle
from ipyagent_sessions.store import Store
from ipyagent_sessions.textsafe import json_lines, plain, plain_lines
from ipyagent_sessions.views import programs
from ipyagent_sessions.views.shown import Shown

USAGE: Final = """usage: ipyagent [--store FOLDER] [--json] COMMAND ...

--store FOLDER  another store than IPYAGENT_STORE or the default
--json          print JSON for programs
"""


class TerminalScreen:
    """Progress on standard error: redrawn in place on a terminal, at most a line a second elsewhere."""

    def __init__(self) -> None:
        self._lines = 0
        self._last = ""
        self._at = 0.0
        self._tty = sys.stderr.isatty()

    def breathe(self) -> None:
        """A terminal has nothing else to do."""

    def update(self, shown: Shown) -> None:
        if self._tty:
            self._redraw(shown.text)
        else:
            line = "  ".join(part.strip() for part in shown.text.splitlines()[:2])
            if line != self._last and time.monotonic() - self._at >= 1.0:
                self._last, self._at = line, time.monotonic()
                print(plain(line), file=sys.stderr, flush=True)

    def final(self, shown: Shown) -> None:
        if self._tty:
            self._redraw(shown.text)
            self._lines = 0
        else:
            print(plain_lines(shown.text), file=sys.stderr, flush=True)

    def _redraw(self, text: str) -> None:
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        lines = [plain(line, width - 1) for line in text.splitlines()]
        up = f"\x1b[{self._lines}F\x1b[J" if self._lines else ""
        sys.stderr.write(up + "\n".join(lines) + "\n")
        sys.stderr.flush()
        self._lines = len(lines)


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 done, 1 the task did not complete or was refused, 2 a usage error."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an ASCII terminal still gets every line
    try:
        store, as_json, words = _globals(words)
        if not words or words[0] in ("-h", "--help") or words == ["help"]:
            print(USAGE)
            words = ["help"]
        if "-h" in words or "--help" in words:
            words = ["help", words[0]]
        options = parser.parse("ipyagent", words)
        door = _door(store, lenient=options.command == "doctor")
        tries = _tries(door, options)
        if tries and supervise.wanted() and not options.bg:
            return supervise.run(door.store, list(sys.argv[1:] if argv is None else argv), tries)
        result = perform(door, TerminalScreen(), options)
        return _print(result, as_json=as_json)
    except IpyagentError as error:
        print(plain_lines(f"ipyagent: {error}"), file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(plain_lines(f"ipyagent: {refused_by_disk(error)}"), file=sys.stderr)
        return 1


def _tries(door: Door, options: argparse.Namespace) -> int:
    """How often a command may go on after a crash; a resume as its task was run before, where nothing else is said."""
    said = outage.policy(getattr(options, "recover", None))
    if said is None and options.command == "resume":
        with contextlib.suppress(IpyagentError):  # told by the command itself
            said = door.session(options.id).state().system_state.recover
    return said or 0


def _globals(words: list[str]) -> tuple[str | None, bool, list[str]]:
    """The options before the command, and `--json` also behind it."""
    store, as_json = None, False
    while words and words[0].startswith("--") and words[0] != "--help":
        word = words.pop(0)
        if word == "--json":
            as_json = True
        elif word == "--store":
            if not words:
                raise UsageError("--store needs a folder", hint="ipyagent --store FOLDER COMMAND ...")
            store = words.pop(0)
        else:
            raise UsageError(f"{word} is not known", hint="ipyagent help")
    behind = words[-1:] if words[:1] in (["run"], ["sql"]) else words  # the others' words are for the workflow, or the query
    if "--json" in behind:
        words.remove("--json")
        as_json = True
    return store, as_json, words


def _door(root: str | None, *, lenient: bool) -> Door:
    """A terminal: no namespace, and nobody to answer when it is not one.

    A process that a kernel started (`!ipyagent run ...` in a cell) inherits the notebook's path, so its tasks belong
    there too."""
    actor = f"user:{_user()}@terminal"
    notebook = os.environ.get("JPY_SESSION_NAME") or None
    return Door(
        Store(root, lenient=lenient),
        actor,
        Origin(notebook, holder=this_process(by=f"terminal of {_user()}")),
        None,
        not sys.stdin.isatty(),
        "ipyagent",
        Path.cwd(),
    )


def _user() -> str:
    try:
        return events.clean(getpass.getuser())[0]
    except (KeyError, OSError):
        return str(os.getuid()) if hasattr(os, "getuid") else "somebody"


def _print(result: Any, *, as_json: bool) -> int:
    if isinstance(result, TaskHandle):
        result.wait()
        result = Ended(result.session.id, result.task_id, result.result())
    if isinstance(result, Ended):
        data: Any = {"session_id": result.session_id, "task_id": result.task_id, "value": result.value}
        text = "" if result.value is None else plain(repr(result.value), 2000)
    elif isinstance(result, Shown):
        data, text = result.data if result.data is not None else result.text, result.text
    else:
        data, text = result.rows(), str(result)
    if as_json:
        print(json_lines(programs.as_json(data)))
    elif text:
        print(plain_lines(text))
    return int(isinstance(result, Judged) and result.failed)


if __name__ == "__main__":
    sys.exit(main())
