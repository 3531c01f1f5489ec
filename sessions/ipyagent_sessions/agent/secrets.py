"""Secret values are taken out of every text before it is stored, shown or sent on (R257).

A value is found as it is and inside JSON: escaped once (a string of a JSON line) or twice (a JSON text inside a JSON string,
as the arguments of a tool call are), with or without `\\uXXXX`, with or without `\\/`.  It is not found when somebody has
encoded it otherwise (base64, reversed, cut in pieces): see docs/models.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

SHORTEST: Final = 4
"""A shorter value is left alone: taking each `1` or `no` out of a text would destroy it and hide nothing."""


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

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self.names)})"

    def scrub(self, text: str) -> str:
        """`text` with each secret value replaced by `<secret NAME>`.

        A search that finds nothing costs one pass of `str.find` for each value and returns the same object.
        """
        found = {form: name for form, name in self._forms if form in text}
        if not found:
            return text
        pattern = re.compile("|".join(re.escape(form) for form in found))
        return pattern.sub(lambda match: f"<secret {found[match[0]]}>", text)


def _forms(value: str) -> Iterable[str]:
    if len(value) < SHORTEST:
        return ()
    forms = {value}
    for _ in range(2):
        for form in tuple(forms):
            for ascii_only in (True, False):
                escaped = json.dumps(form, ensure_ascii=ascii_only)[1:-1]
                forms |= {escaped, escaped.replace("/", "\\/")}
    return forms
