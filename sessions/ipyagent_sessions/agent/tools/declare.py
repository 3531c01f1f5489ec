"""Declaring a tool: a typed function, and what it does to the world.

    @tool(effect="idempotent", timeout="30s")
    def convert(path: str, to: str = "parquet") -> str:
        "Convert a table in place.

        Args:
            path: where it is
            to: the format it shall have
        "

The schema that a model sees comes from the type hints and the docstring, by pydantic-ai.  pydantic-ai is slow to import and is
not needed to declare.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args, overload

from ipyagent_sessions.agent.tools.results import guarded
from ipyagent_sessions.config import seconds
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.run.definitions import EFFECTS, Effect, check_effect

if TYPE_CHECKING:
    import pydantic_ai.tools

Approval = Literal["ask", "auto", "never"]
APPROVALS: Final[tuple[str, ...]] = get_args(Approval)

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What all providers take as the name of a tool."""


class Tool:
    """A function that a model may call, with what is declared about it.  Calling it calls the function.

    `effect` is none, idempotent or irreversible; undeclared is irreversible (R127).  `approval` is ask, auto or never; None
    leaves it to the policy.  `verify(**arguments)` answers whether an irreversible call that left no result happened: True,
    False, or `Done(result)`.  `unusable()` says why the tool cannot work here, or None.  `more` tells the model how to get
    what was cut.  A `sequential` tool runs beside no other: those that the model called before it end first.  Irreversible
    ones are.

    Raises UsageError when a parameter has no type hint or the name is none that providers take.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        effect: Effect | None = None,
        approval: Approval | None = None,
        timeout: str | float | None = None,
        verify: Callable[..., Any] | None = None,
        name: str | None = None,
        unusable: Callable[[], str | None] | None = None,
        more: str = "",
        sequential: bool | None = None,
    ) -> None:
        if not callable(function):
            raise UsageError(f"@tool needs a function, not {type(function).__name__}", hint="write @tool above a def")
        self.function = function
        self.name: str = name or getattr(function, "__name__", None) or type(function).__name__
        if not NAME.fullmatch(self.name):
            raise UsageError(f"{self.name!r} is no name for a tool", hint='name="..." of letters, digits, _ and -, at most 64')
        check_effect(self.name, effect)
        if approval is not None and approval not in APPROVALS:
            raise UsageError(f"{self.name}: approval={approval!r} is not known", hint=f"one of {', '.join(APPROVALS)}")
        self.effect: Effect = effect or "irreversible"
        self.approval: Approval | None = approval
        self.timeout_s = None if timeout is None else seconds(timeout, f"timeout of {self.name}")
        self.verify = verify
        self.unusable: Callable[[], str | None] = unusable or (lambda: None)
        self.more = more
        self.sequential = self.effect == "irreversible" if sequential is None else sequential
        _check_hints(self.name, function)
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}, effect {self.effect}>"

    @functools.cached_property
    def pydantic(self) -> pydantic_ai.tools.Tool[Any]:
        """The tool as one of pydantic-ai.  Raises UsageError when a parameter's type has no JSON schema."""
        return _made(self)

    @property
    def description(self) -> str:
        """What the model is told about the tool: the docstring without the part about parameters."""
        return self.pydantic.description or ""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return self.pydantic.function_schema.json_schema


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    effect: Effect | None = None,
    approval: Approval | None = None,
    timeout: str | float | None = None,
    verify: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a typed function as a tool; the options are those of `Tool`."""
    if function is not None:
        return Tool(function)
    return lambda f: Tool(f, **options)


def to_pydantic(tool: Tool) -> pydantic_ai.tools.Tool[Any]:
    """`tool` as one of pydantic-ai, with its declaration as metadata.  Results are bounded, errors told to the model.

    pydantic-ai's own timeout is left alone: the engine's stops the work, and knows what was left unknown.
    """
    return tool.pydantic


class Declared(NamedTuple):
    """What a pydantic-ai tool's metadata says about it."""

    effect: Effect
    approval: Approval | None
    timeout_s: float | None


def metadata(effect: Effect, approval: Approval | None = None, timeout_s: float | None = None) -> dict[str, Any]:
    """What `declared` reads."""
    return {"effect": effect, "approval": approval, "timeout_s": timeout_s}


def declared(name: str, found: Mapping[str, Any] | None) -> Declared:
    """The declaration of any pydantic-ai tool, from its metadata; a tool without one is irreversible.

    Raises UsageError when the metadata holds something else than an effect, an approval or a number of seconds.
    """
    found = found or {}
    effect, approval, timeout = found.get("effect"), found.get("approval"), found.get("timeout_s")
    if effect is not None and effect not in EFFECTS:
        raise UsageError(f"{name}: metadata effect={effect!r} is not known", hint=f"one of {', '.join(EFFECTS)}")
    if approval is not None and approval not in APPROVALS:
        raise UsageError(f"{name}: metadata approval={approval!r} is not known", hint=f"one of {', '.join(APPROVALS)}")
    return Declared(
        effect or "irreversible",
        approval,
        None if timeout is None else seconds(timeout, f"timeout_s in the metadata of {name}"),
    )


def _check_hints(name: str, function: Callable[..., Any]) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} has no signature that can be read", hint="wrap it in a def with type hints") from error
    bare = [p.name for p in parameters if p.annotation is inspect.Parameter.empty]
    if bare:
        raise UsageError(
            f"{name}: no type hint for {', '.join(bare)}",
            hint=f"a model needs to know what to give: def {name}({bare[0]}: str)",
        )


def _made(tool: Tool) -> pydantic_ai.tools.Tool[Any]:
    import pydantic_ai.tools
    from pydantic.errors import PydanticUserError
    from pydantic_ai.exceptions import UserError

    try:
        return pydantic_ai.tools.Tool(
            guarded(tool.function, tool.more),
            name=tool.name,
            metadata=metadata(tool.effect, tool.approval, tool.timeout_s),
            sequential=tool.sequential,
        )
    except (PydanticUserError, UserError, NameError, TypeError) as error:
        said = " ".join(line.strip() for line in str(error).partition("\n\nFor further")[0].splitlines())
        raise UsageError(
            f"{tool.name} cannot be offered to a model: {said}",
            hint="parameters are text, numbers, lists, dicts, dataclasses or pydantic models",
        ) from error
