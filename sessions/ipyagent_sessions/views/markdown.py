"""Markdown of a model as HTML that can do nothing: no raw HTML, no script, no address that acts, no picture from elsewhere.

A notebook trusts what its own cells put out, so a front end's sanitiser is not asked; what leaves here has to be harmless by
itself.  A picture would be fetched without a click, and its address can carry data away: it is shown as a link."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ipyagent_sessions.textsafe import plain_lines

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict


def html_of(text: str) -> str:
    """The HTML of `text`; raw HTML in it is shown as text."""
    return f'<div class="ipyagent-markdown">{_renderer().render(plain_lines(text))}</div>'


@functools.cache
def _renderer() -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    made.add_render_rule("image", _picture_as_link)
    made.add_render_rule("link_open", _link)
    return made


def _picture_as_link(renderer: Any, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    from markdown_it.common.utils import escapeHtml

    token = tokens[index]
    address = escapeHtml(str(token.attrs.get("src", "")))
    return f'<a href="{address}" rel="noopener noreferrer nofollow" target="_blank">[picture: {escapeHtml(token.content)}]</a>'


def _link(renderer: Any, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    tokens[index].attrSet("target", "_blank")
    return str(renderer.renderToken(tokens, index, options, env))
