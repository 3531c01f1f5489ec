"""Secret values are taken out of every text before it is stored, shown or sent on (R257).

A value is found as it is, as Python shows it in an error, and inside JSON: escaped once (a string of a JSON line) or twice (a
JSON text inside a JSON string, as the arguments of a tool call are), with or without `\\uXXXX`, with or without `\\/`.  It is
not found when somebody has encoded it otherwise (base64, reversed, cut in pieces): see docs/models.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

SHORTEST: Final = 4
"""A shorter value is left alone: taking each `1` or `no` out of a text would destroy it and hide nothing."""


class Scrub(Protocol):
    """Takes secrets out of a text.  With `more`, text is still to come: an end that may begin a secret is held back."""

    def __call__(self, text: str, *, more: bool = False) -> str: ...


def nothing_secret(text: str, *, more: bool = False) -> str:
    """A `Scrub` where there are no secrets."""
    return text


class Secrets:
    """The secret values known now, each under the name of its variable.

    Values are never shown: `repr` gives the names.  Make a new one to look at the environment again.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.names = tuple(sorted(values))
        self.unprotected = tuple(sorted(name for name, value in values.items() if 0 < len(value.strip()) < SHORTEST))
        named = {form: name for name, value in values.items() for form in _forms(value.strip())}
        # The longest first, so that a value which is the beginning of another leaves no rest of the longer one.
        self._forms = sorted(named.items(), key=lambda pair: (-len(pair[0]), pair))
        self._longest = len(self._forms[0][0]) if self._forms else 0
        self._firsts = frozenset(form[0] for form, _ in self._forms)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self.names)})"

    def scrub(self, text: str, *, more: bool = False) -> str:
        """`text` with each secret value replaced by `<secret NAME>`; `more` as in `Scrub`.

        A search that finds nothing costs one pass of `str.find` for each value and returns the same object.
        """
        found = {form: name for form, name in self._forms if form in text}
        if not found:
            return self._without_beginning(text) if more else text
        pattern = re.compile("|".join(re.escape(form) for form in found))
        clean = pattern.sub(lambda match: f"<secret {found[match[0]]}>", text)
        return self._without_beginning(clean) if more else clean

    def _without_beginning(self, text: str) -> str:
        """`text` without an end that is the beginning of a secret value."""
        for i in range(max(0, len(text) - self._longest), len(text)):
            if text[i] in self._firsts and any(form.startswith(text[i:]) for form, _ in self._forms):
                return text[:i]
        return text


def _forms(value: str) -> Iterable[str]:
    if len(value) < SHORTEST:
        return ()
    forms = {value, repr(value)[1:-1]}
    for _ in range(2):
        for form in tuple(forms):
            for ascii_only in (True, False):
                escaped = json.dumps(form, ensure_ascii=ascii_only)[1:-1]
                forms |= {escaped, escaped.replace("/", "\\/")}
    return forms
