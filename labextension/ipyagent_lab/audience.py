"""The pages that listen: who watches which session, who follows the list, and what they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec
from ipyagent_sessions.errors import IpyagentError

from ipyagent_lab import errors
from ipyagent_lab.pace import CARD_GAP, LIST_GAP, Paced
from ipyagent_lab.shapes import CardMessage, ListMessage, Message, ProblemMessage

if TYPE_CHECKING:
    from ipyagent_lab.service import Service


class Page(Protocol):
    """A page, as far as it is told things.  A later message under the same `key` replaces one that was not sent yet."""

    def tell(self, key: str, message: Callable[[], Message]) -> None: ...


_encoder = msgspec.json.Encoder()


def encode(message: Message) -> bytes:
    """A message as JSON."""
    return _encoder.encode(message)
