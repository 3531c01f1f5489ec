"""run_python: code in the notebook's namespace, as if it were a cell.

It is not confined: it may do what the user may do.
"""

from __future__ import annotations

from typing import Any, Final

from ipyagent_sessions.agent.tools.declare import Tool
from ipyagent_sessions.agent.tools.workbench import CellResult, Picture, Workbench
from ipyagent_sessions.errors import UsageError

_PART: Final = 4_500
"""Characters of each of output, errors and result that are shown."""
_MOST_PICTURES: Final = 4
_BIGGEST_PICTURE: Final = 2_000_000


def run_python(bench: Workbench) -> Tool:
    """The tool for this workbench.  Effect irreversible."""

    async def run_python(code: str) -> Any:
        """Run Python code in the user's notebook; variables stay.  Gives what it printed and the value of its last expression.

        Args:
            code: the code, like that of a cell.
        """
        if bench.run_cell is None:
            raise UsageError(_NO_KERNEL)
        if not code.strip():
            raise UsageError("there is no code")
        found = await bench.run_cell(code)
        for png in found.pictures:
            bench.report(Picture(png))
        shown = _shown(found) if bench.sees_pictures else []
        text = _text(found, len(found.pictures) - len(shown))
        return [text, *shown] if shown else text

    return Tool(
        run_python,
        effect="irreversible",
        unusable=lambda: None if bench.run_cell is not None else _NO_KERNEL,
        more="print less of it",
    )


_NO_KERNEL: Final = "there is no notebook: it works where a kernel runs the agent"


def _text(found: CellResult, unseen: int) -> str:
    parts = [("", found.stdout), ("[errors]\n", found.stderr), ("[value]\n", found.result)]
    said = [head + _bounded(text.rstrip("\n")) for head, text in parts if text.strip()]
    if unseen:
        said.append(f"[{unseen} picture{'s' if unseen != 1 else ''} shown to the user and not to you]")
    if found.error is not None:
        where = f" (line {found.error.line})" if found.error.line else ""
        said.append(f"[failed] {found.error.name}: {_bounded(found.error.message)}{where}")
    return "\n".join(said) or "[no output]"


def _bounded(text: str) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= _PART:
        return text
    return f"{text[: _PART // 2]}\n[{len(text) - _PART:,} characters are left out here]\n{text[-_PART // 2 :]}"


def _shown(found: CellResult) -> list[Any]:
    from pydantic_ai.messages import BinaryContent

    fitting = [png for png in found.pictures if len(png) <= _BIGGEST_PICTURE][:_MOST_PICTURES]
    return [BinaryContent(png, media_type="image/png") for png in fitting]
