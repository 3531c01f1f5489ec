"""The same as static HTML: no script, no address from outside, every text escaped.

Colours come from Jupyter's own variables with fallbacks, so it reads in light and dark, on GitHub and in nbconvert's pages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from ipyagent_sessions.textsafe import plain, plain_lines
from ipyagent_sessions.views import formats
from ipyagent_sessions.views.card import LATEST, Ask, Card, answers_to, resources, resuming, steps

_COLOUR: Final = {
    "running": "--jp-brand-color1, #1a73e8",
    "completed": "--jp-success-color1, #1a7f37",
    "failed": "--jp-error-color1, #cf222e",
    "lost": "--jp-error-color1, #cf222e",
    "suspended": "--jp-warn-color1, #9a6700",
}
_MUTED: Final = "color:var(--jp-ui-font-color2, #656d76)"
_LINE: Final = "var(--jp-border-color2, #d0d7de)"
_FONT: Final = (
    "font-family:var(--jp-ui-font-family, system-ui, sans-serif);font-size:13px;line-height:1.45;"
    "font-variant-numeric:tabular-nums"
)


def card(shown: Card, *, prefix: str = "%agent") -> str:
    """A task as a card; `prefix` is how commands are written at this door."""
    colour = _COLOUR.get(shown.state, "--jp-ui-font-color2, #656d76")
    done = 100 if shown.state == "completed" else (100 * min(shown.done, shown.total) // shown.total if shown.total else 0)
    of = f" of {shown.total}" if shown.total else ""
    head = (
        f'<div style="display:flex;gap:10px;align-items:baseline;padding:8px 12px 4px"><span style="color:var({colour})" '
        f'aria-hidden="true">&#9679;</span><b style="font-size:14px">{_text(shown.title, 80)}</b>'
        f'<span style="{_MUTED};font-family:var(--jp-code-font-family, monospace);font-size:12px">'
        f"{_text(shown.task_id, 60)} · {_text(shown.target, 60)}</span></div>"
    )
    bar = (
        f'<div style="height:4px;margin:2px 12px;border-radius:2px;background:{_LINE}"><div style="width:{done}%;height:4px;'
        f'border-radius:2px;background:var({colour})"></div></div>'
    )
    far = f"<b>{shown.done}{of}</b> activities" if of else _text(steps(shown), 80)
    facts = [f"<b>{_text(shown.state, 30)}</b> {formats.duration(shown.elapsed_s)}", far]
    if shown.model:
        facts.append(_text(shown.model, 60))
    if shown.failed:
        facts.append(f"{shown.failed} failed")
    if shown.recovery:
        again = f" ({formats.times(shown.recoveries)})" if shown.recoveries > 1 else ""
        facts.append(f"{_text(shown.recovery, 200)}{again}")
    if shown.stage:
        facts.append(f"stage <b>{_text(shown.stage, 60)}</b> {_text(shown.stage_name, 60)}")
    if shown.now:
        facts.append(f"now <b>{_text(', '.join(shown.now[:3]), 120)}</b>")
    if shown.state == "running" and shown.kind != "agent":
        rest = "unknown" if shown.remaining_s is None else f"about {formats.duration(shown.remaining_s)}"
        facts.append(f'<b>{rest}</b> left <span style="{_MUTED}">({_text(shown.remaining_basis, 80)})</span>')
    elif shown.state != "running" and shown.headline != shown.state and not shown.asks:  # a request says it below
        facts.append(_text(shown.headline, 300))
        if not shown.actions["resume"]:
            facts.append(f"continue with <code>{_text(resuming(shown, prefix), 200)}</code>")
    rows = [head, bar, f'<div style="display:flex;flex-wrap:wrap;gap:4px 14px;padding:6px 12px">{_spans(facts)}</div>']
    if shown.partial:
        rows.append(f'<div style="padding:2px 12px 6px;{_MUTED};white-space:pre-wrap">{_lines(shown.partial)}</div>')
    rows += [_ask(shown, ask, prefix) for ask in shown.asks]
    rows.append(
        f'<div style="display:flex;flex-wrap:wrap;gap:4px 14px;padding:6px 12px;border-top:1px solid {_LINE};font-size:12px;'
        f'{_MUTED}">{_spans(_foot(shown))}</div>'
    )
    if len(shown.alarms) > LATEST:
        earlier = f"{prefix} log {shown.session_id} --type AlarmRaised"
        rows.append(
            f'<div style="padding:2px 12px 6px;{_MUTED}">{len(shown.alarms) - LATEST} earlier alarms: '
            f"<code>{_text(earlier, 200)}</code></div>"
        )
    rows += [
        f'<div style="padding:2px 12px 6px;color:var(--jp-warn-color1, #9a6700)">alarm: {_text(a, 200)}</div>'
        for a in shown.alarms[-LATEST:]
    ]
    return f'<div style="border:1px solid {_LINE};border-radius:6px;max-width:860px;{_FONT}">{"".join(rows)}</div>'


def _foot(shown: Card) -> list[str]:
    parts = []
    if shown.checkpoint_age_s is not None:
        following = f" · next in {formats.duration(shown.checkpoint_next_s)}" if shown.checkpoint_next_s is not None else ""
        parts.append(f"checkpoint {_text(shown.checkpoint_label, 60)} {formats.age(shown.checkpoint_age_s)}{following}")
    parts += resources(shown)
    parts.append(f"{_text(shown.durability, 30)} · {_text(shown.risk, 200)}")
    return parts


def _ask(shown: Card, ask: Ask, prefix: str) -> str:
    answers = "   or   ".join(answers_to(shown, ask, prefix))
    details = f" <code>{_text(ask.details, 400)}</code>" if ask.details else ""
    return (
        f'<div style="margin:2px 12px 8px;padding:6px 10px;border:1px solid var(--jp-warn-color1, #9a6700);border-radius:5px">'
        f"<b>needs you</b> {_text(ask.question, 300)}{details}<br>"
        f'<span style="{_MUTED}"><code>{_text(answers, 400)}</code> · {_text(ask.if_ignored, 80)}</span></div>'
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, right: frozenset[str] = frozenset()) -> str:
    """Rows under headings."""

    def cell(tag: str, value: Any, column: str) -> str:
        side = "right" if column in right else "left"
        return f'<{tag} style="text-align:{side};padding:2px 10px 2px 0;vertical-align:top">{_text(value, 400)}</{tag}>'

    head = "".join(cell("th", c, c) for c in columns)
    body = "".join("<tr>" + "".join(cell("td", v, c) for v, c in zip(row, columns, strict=True)) + "</tr>" for row in rows)
    return f'<table style="{_FONT};border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def pre(text: str) -> str:
    """Lines of text as they are, harmless."""
    return f'<pre style="font-size:12px;line-height:1.4;white-space:pre-wrap">{escape(plain_lines(text))}</pre>'


def tree(value: Any) -> str:
    """A JSON-like value, indented."""
    return pre(json.dumps(value, indent=2, ensure_ascii=False))


def _text(value: Any, width: int) -> str:
    return escape(plain("" if value is None else str(value), width))


def _lines(text: str) -> str:
    """The end of a text that is still coming, with its line breaks."""
    return escape(plain_lines(text[-1500:]))


def _spans(parts: Sequence[str]) -> str:
    return "".join(f"<span>{part}</span>" for part in parts)
