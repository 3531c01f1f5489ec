"""A turn that counts once a command says so: else its files go back, and the agent is told what the command said (R132)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from ipyagent_sessions.agent.records import Records
from ipyagent_sessions.agent.tools.run_shell import LONGEST_S, execute
from ipyagent_sessions.run.checked import ATTEMPTS
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Inner
from ipyagent_sessions.textsafe import plain

_NAME: Final = 80
_AGAIN: Final = """\
[The check `{command}` failed. So {what} are back as they were before, unless somebody else has changed them since; what else \
commands and code did is not undone. Try again, and read a file again before you change it. It said:]
{failure}"""


class Check(Struct, frozen=True):
    """The command that has to end with exit code 0, in the workspace, and how often the turn is tried; none without one.

    Of the files that match `files`, below the working folder, also what commands and code changed goes back.
    """

    command: str = ""
    attempts: int = ATTEMPTS
    files: str | Sequence[str] = ()


async def checked(ctx: Context, check: Check, prompt: str, records: Records, turn: Callable[[str], Awaitable[Any]]) -> Any:
    """What `turn(prompt)` gives, in the first attempt that passes the check.  Raises CheckFailed when none does."""
    if not check.command:
        return await turn(prompt)

    async def part(failure: str | None) -> Any:
        if failure is None:
            return await turn(prompt)
        also = f" and those that match {_listed(check.files)}" if check.files else ""
        what = f"the files that you wrote with write_file and edit_file{also}"
        return await turn(_AGAIN.format(command=check.command, what=what, failure=failure))

    async def run(_: Any) -> str | None:
        ended = await execute(records.bench, check.command, LONGEST_S)
        return None if ended.good else records.scrub(ended.said)

    name = plain(check.command, _NAME)
    return await ctx.checked(name, part, check=Inner(run, name="check"), files=check.files, attempts=check.attempts)


def _listed(files: str | Sequence[str]) -> str:
    return files if isinstance(files, str) else ", ".join(files)
