"""The layers of the settings: what their files say together, and which of them said it.

Low to high: the defaults, the user's file, the project's file (DESIGN section 11, point 5).  Mappings are merged key by key,
an entry of `models` or `mcp` is taken whole, lists of names add up, everything else is replaced.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ipyagent_sessions.config import read_yaml
from ipyagent_sessions.errors import ConfigError

DEFAULT: Final = "default"
_WHOLE: Final = (("models",), ("mcp",))

Layer = tuple[str, dict[str, Any]]
Place = tuple[str, ...]


def read(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; an empty file is an empty mapping.  Raises ConfigError naming the file."""
    document = read_yaml(path)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(
            f"{path}: must hold a mapping, not {type(document).__name__}", hint="for example: model: openai:NAME"
        )
    return document


def merged(layers: list[Layer]) -> tuple[dict[str, Any], dict[Place, str]]:
    """What the layers (low to high) say together, and for each leaf the name of the layer it comes from."""
    document: dict[str, Any] = {}
    origins: dict[Place, str] = {}
    for source, layer in layers:
        _lay(document, layer, (), source, origins)
    return document, origins


def _lay(below: dict[str, Any], above: dict[str, Any], at: Place, source: str, origins: dict[Place, str]) -> None:
    for key, value in above.items():
        here = (*at, str(key))
        if value is None:  # `models:` with nothing under it says nothing
            continue
        if isinstance(value, dict) and isinstance(below.get(key), dict) and at not in _WHOLE:
            _lay(below[key], value, here, source, origins)
        elif isinstance(value, list) and isinstance(below.get(key), list):
            below[key] = [*below[key], *(item for item in value if item not in below[key])]
            origins[here] = f"{origins[here]} + {source}"
        else:
            for known in [place for place in origins if place[: len(here)] == here]:
                del origins[known]
            below[key] = _copied(value)
            origins |= {place: source for place, _ in leaves(value, here)}


def leaves(value: Any, at: Place) -> list[tuple[Place, Any]]:
    """The values that are not mappings, each with its path; an empty mapping is a leaf itself."""
    if isinstance(value, dict) and value:
        return [leaf for key, inner in value.items() for leaf in leaves(inner, (*at, str(key)))]
    return [(at, value)]


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _copied(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, list) else value
