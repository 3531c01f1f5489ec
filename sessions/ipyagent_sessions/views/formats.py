"""Numbers as a person reads them."""

from __future__ import annotations

from typing import Final

from ipyagent_sessions.clock import duration as duration

_SIZES: Final = ("B", "KB", "MB", "GB", "TB")


def age(seconds: float) -> str:
    """40 s ago; "now" for less than a second."""
    return "now" if seconds < 1 else f"{duration(seconds)} ago"


def size(count: float | None) -> str:
    """1.2 GB in powers of 1000; "unknown" for None."""
    if count is None:
        return "unknown"
    for unit in _SIZES:
        if count < 1000 or unit == _SIZES[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("the last unit ends the loop")


def times(count: int) -> str:
    """once, 2 times."""
    return "once" if count == 1 else f"{count} times"


def quantity(count: float) -> str:
    """18.2 k, 3.1 M."""
    if count < 1000:
        return f"{count:.0f}"
    return f"{count / 1000:.1f} k" if count < 999_950 else f"{count / 1_000_000:.1f} M"


def money(usd: float) -> str:
    """$0.31; four digits below a cent."""
    return f"${usd:.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.4f}"


def cost(usd: float, unpriced: int) -> str:
    """What model requests cost; said to be incomplete when the price of `unpriced` of them is not known."""
    if not unpriced:
        return money(usd)
    return f"{money(usd)} and more" if usd else "cost unknown"


def percent(part: float, whole: float) -> str:
    """65 %, rounded down so that 100 % means done."""
    return f"{int(100 * part / whole) if whole else 0} %"


def clock(timestamp: str) -> str:
    """The time of day, UTC, of one of our timestamps: 14:02:07."""
    return timestamp[11:19]
