"""Settings of agents: models, MCP servers, permissions, budgets, tools, secrets.

They come from YAML files in layers (see `layers`).  A string may refer to an environment variable as `${NAME}`: the reference
is what is kept, shown and logged; its value is looked up at the moment of use (R257).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ipyagent_sessions import config
from ipyagent_sessions.agent import layers, sections
from ipyagent_sessions.agent.secrets import Secrets
from ipyagent_sessions.agent.sections import KEYS, Budget, ModelEntry, Permissions, Tools
from ipyagent_sessions.agent.tools.mcp_config import Server
from ipyagent_sessions.errors import ConfigError
from ipyagent_sessions.run import triggers

_DEFAULTS: Final[dict[str, Any]] = {
    "permissions": {"effects": {"none": "auto", "idempotent": "auto", "irreversible": "ask"}},
    "budget": {"task": {"steps": 100}},
    "tools": {"workspace": "."},
}
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Names that mean a secret wherever they stand, in the environment or in a server's headers.
_TELLING: Final = re.compile(r"((api|access|secret)[-_]?key|token|authorization|cookie|password|secret)$", re.IGNORECASE)
# What a server's environment refers to without being secret: taking these values out would destroy every path.
_PLAIN: Final = frozenset(
    ("PATH", "HOME", "USER", "USERNAME", "LOGNAME", "USERPROFILE", "SHELL", "LANG", "LC_ALL", "PWD", "TMPDIR", "TEMP", "TMP")
)


class Explained(NamedTuple):
    """A line of `%agent config`: a dotted path, its value with secrets masked, and the layer it comes from."""

    path: str
    value: str
    source: str


def check_file(path: Path) -> None:
    """Read a whole file of settings, also what is not asked for now.  Raises ConfigError naming the file and the path of the
    first key or value that is wrong."""
    document = layers.read(path)
    with config.naming(path):
        sections.read(document)
        triggers.check_paths(config.checkpoint_policy(document).paths)
        config.memory_policy(document)


class Settings(Struct, frozen=True):
    """What all layers say together.  Strings hold `${NAME}` as written; `text` and `server` look the values up."""

    model: str | None = None
    models: Mapping[str, ModelEntry] = {}
    mcp: Mapping[str, Server] = {}
    permissions: Permissions = Permissions()
    budget: Budget = Budget()
    tools: Tools = Tools()
    secrets: tuple[str, ...] = ()
    origins: Mapping[layers.Place, str] = {}
    document: Mapping[str, Any] = {}

    @classmethod
    def load(cls, folder: Path, environ: Mapping[str, str] = os.environ) -> Settings:
        """The settings in force in `folder`, read afresh.  Raises ConfigError naming the file and the path of the key."""
        found = [path for path in (config.user_file(environ), config.project_file(folder)) if path is not None]
        stack: list[layers.Layer] = [(layers.DEFAULT, _DEFAULTS)]
        for path in found:
            document = layers.read(path)
            with config.naming(path):
                sections.read(document)  # by itself, so that an error names the file it stands in
            stack.append((str(path), document))
        together, origins = layers.merged(stack)
        return cls(**sections.read(together), origins=origins, document=together)

    def text(self, value: str, at: layers.Place, environ: Mapping[str, str] = os.environ) -> str:
        """`value` with each `${NAME}` replaced by its variable.  Raises ConfigError naming file, key and variable."""

        def looked_up(match: re.Match[str]) -> str:
            if match[1] not in environ:
                raise ConfigError(
                    f"{self._file(at)}: {'.'.join(at)}: the environment variable {match[1]} is not set",
                    hint=f"set {match[1]} before the kernel starts, or in a cell with %env",
                )
            return environ[match[1]]

        return _REFERENCE.sub(looked_up, value)

    def server(self, name: str, environ: Mapping[str, str] = os.environ) -> Server:
        """The MCP server `name` with all references looked up.  Raises ConfigError naming file, key and variable."""
        kept, at = self.mcp[name], ("mcp", name)

        def of(value: str | None, *key: str) -> str | None:
            return None if value is None else self.text(value, (*at, *key), environ)

        return replace(
            kept,
            command=of(kept.command, "command"),
            args=[self.text(arg, (*at, "args"), environ) for arg in kept.args],
            env={key: self.text(value, (*at, "env", key), environ) for key, value in kept.env.items()},
            url=of(kept.url, "url"),
            headers={key: self.text(value, (*at, "headers", key), environ) for key, value in kept.headers.items()},
        )

    def known_secrets(self, environ: Mapping[str, str] = os.environ) -> Secrets:
        """The values that must not be stored: keys of providers, variables that the settings name or refer to, and every
        variable that is called a key or a token and has at least 16 characters.
        """
        names = {*KEYS.values(), *self.secrets, *(entry.api_key_env for entry in self.models.values() if entry.api_key_env)}
        literal: dict[str, str] = {}
        for place, value in layers.leaves(self.document.get("mcp", {}), ("mcp",)):
            references = {name for item in _strings(value) for name in _REFERENCE.findall(item)}
            names |= references - _PLAIN
            if not references and _TELLING.search(place[-1]) and isinstance(value, str):
                literal[".".join(place)] = value
        names |= {name for name, value in environ.items() if _TELLING.search(name) and len(value) >= 16}
        return Secrets(literal | {name: environ[name] for name in names if environ.get(name)})

    def explained(self, environ: Mapping[str, str] = os.environ) -> list[Explained]:
        """Every value in force with the layer that says it, in the order of the sections."""
        secrets = self.known_secrets(environ)
        rows = [] if self.model else [Explained("model", "(none)", layers.DEFAULT)]
        for place, value in layers.leaves({k: v for k, v in self.document.items() if k not in ("checkpoint", "memory")}, ()):
            shown = ", ".join(_strings(value)) if isinstance(value, list) else str(value)
            masked = secrets.scrub(re.sub(r"://[^/@\s]+@", "://<secret>@", shown))
            rows.append(Explained(".".join(place), masked, self.origins[place]))
        order = list(Settings.__struct_fields__)
        return sorted(rows, key=lambda row: order.index(row.path.partition(".")[0]))

    def _file(self, at: layers.Place) -> str:
        return next((self.origins[at[:n]] for n in range(len(at), 0, -1) if at[:n] in self.origins), "settings")


def _strings(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]
