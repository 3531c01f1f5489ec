"""Cards, lists and logs as text: for terminals, for front ends without HTML, and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ipyagent_sessions.textsafe import display_width, plain
from ipyagent_sessions.views import formats
from ipyagent_sessions.views.card import LATEST, Card, answers_to, resources, resuming, steps

_BAR: Final = 28


def card(shown: Card, *, prefix: str = "%agent") -> str:
    """A task in a few lines; `prefix` is how commands are written at this door."""
    lines = [f"{plain(shown.title, 60)}  {plain(shown.task_id, 60)}  {shown.state}  {formats.duration(shown.elapsed_s)}"]
    lines.append(f"  {bar(shown.done, shown.total) if shown.total else steps(shown)}{of_model(shown)}")
    if shown.recovery:
        again = f" ({formats.times(shown.recoveries)})" if shown.recoveries > 1 else ""
        lines.append(f"  {plain(shown.recovery, 200)}{again}")
    if shown.stage:
        lines.append(f"  stage {plain(shown.stage, 60)} {plain(shown.stage_name, 60)}")
    if shown.now:
        more = f" and {len(shown.now) - 3} more" if len(shown.now) > 3 else ""
        lines.append(f"  now {', '.join(plain(n, 60) for n in shown.now[:3])}{more}")
    if shown.partial:
        lines.append(f"  says {plain(shown.partial[-200:].strip(), 200)}")
    if shown.state == "running" and shown.kind != "agent":
        rest = "unknown" if shown.remaining_s is None else f"about {formats.duration(shown.remaining_s)}"
        lines.append(f"  remaining {rest} ({shown.remaining_basis})")
    elif shown.state != "running" and shown.headline != shown.state and not shown.asks:  # a request says it below
        lines.append(f"  {plain(shown.headline, 200)}")
        if not shown.actions["resume"]:
            lines.append(f"  continue with: {plain(resuming(shown, prefix), 200)}")
    if shown.checkpoint_age_s is not None:
        named = f" {plain(shown.checkpoint_label, 60)}" if shown.checkpoint_label else ""
        following = f", next in {formats.duration(shown.checkpoint_next_s)}" if shown.checkpoint_next_s is not None else ""
        lines.append(f"  checkpoint{named} {formats.age(shown.checkpoint_age_s)} (event {shown.checkpoint_seq}){following}")
    used = resources(shown)
    if used:
        lines.append(f"  {'  '.join(used)}")
    lines.append(f"  {plain(shown.durability, 30)}: {shown.risk}")
    for ask in shown.asks:
        lines.append(f"  needs you: {plain(ask.question, 160)}" + (f" {plain(ask.details, 160)}" if ask.details else ""))
        answers = "   or   ".join(answers_to(shown, ask, prefix))
        lines.append(f"    {plain(answers, 400)}   ({plain(ask.if_ignored, 80)})")
    if len(shown.alarms) > LATEST:
        lines.append(f"  {len(shown.alarms) - LATEST} earlier alarms: {prefix} log {shown.session_id} --type AlarmRaised")
    lines += [f"  alarm: {plain(text, 200)}" for text in shown.alarms[-LATEST:]]
    return "\n".join(lines)


def of_model(shown: Card) -> str:
    """Which model an agent asks; a model that is played from a file or a recording says so by its name."""
    return f"  {plain(shown.model, 60)}" if shown.model else ""


def bar(done: int, total: int) -> str:
    """A progress bar with n of m."""
    filled = min(_BAR, _BAR * done // total)
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {done} of {total}, {formats.percent(min(done, total), total)}"


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int = 60, right: frozenset[str] = frozenset()
) -> str:
    """Rows under headings, aligned by display width; each cell in one line of at most `width` columns."""
    cells = [[plain("" if v is None else str(v), width) for v in row] for row in rows]
    sizes = [max([display_width(c), *(display_width(row[i]) for row in cells)]) for i, c in enumerate(columns)]

    def line(values: Sequence[str]) -> str:
        padded = [
            (" " * (size - display_width(v)) + v) if c in right else (v + " " * (size - display_width(v)))
            for v, size, c in zip(values, sizes, columns, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(list(columns)), *(line(row) for row in cells)])
