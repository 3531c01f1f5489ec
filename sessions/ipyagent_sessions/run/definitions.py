"""What a person declares: workflows, activities, and how they are retried, timed out, verified and undone."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple, overload

from msgspec import Struct

from ipyagent_sessions.config import seconds
from ipyagent_sessions.errors import UsageError

Effect = Literal["none", "idempotent", "irreversible"]
EFFECTS: Final[tuple[Effect, ...]] = ("none", "idempotent", "irreversible")


OPTIONS: Final = ("key", "effect", "retry", "timeout", "verify", "compensate", "isolate", "name")
"""What `ctx.run` takes beside the function's own arguments."""


def is_whole(value: Any, least: int) -> bool:
    """Whether `value` is a whole number from `least`: callers without a type checker give anything."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_length(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


class Retry(Struct, frozen=True):
    """How often and how long apart an activity is tried.

    `attempts` counts the first one.  Waits grow from `initial_s` by the factor `factor` up to `max_s` seconds, with a
    random part of up to `jitter_s` on top; a server that asks for more (Retry-After) gets it.  Only exceptions of the types in
    `on` are retried.  With `then="suspend"` a network that is still away after the last attempt suspends the task instead of
    failing the activity; a full disk or memory does so anyway, unless the call is irreversible."""

    attempts: int = 3
    initial_s: float = 0.5
    max_s: float = 60.0
    factor: float = 2.0
    jitter_s: float = 0.5
    on: tuple[type[BaseException], ...] = (Exception,)
    then: Literal["fail", "suspend"] = "fail"

    def __post_init__(self) -> None:
        if not is_whole(self.attempts, 1):
            raise UsageError(f"attempts={self.attempts!r} of a Retry tries nothing", hint="a whole number from 1")
        lengths = {"initial_s": self.initial_s, "max_s": self.max_s, "factor": self.factor, "jitter_s": self.jitter_s}
        for name, value in lengths.items():
            if not _is_length(value):
                raise UsageError(f"{name}={value!r} of a Retry is no length of a wait", hint="a number from 0")


ONCE: Final = Retry(1)


def retry_of(name: str, given: Retry | int | None) -> Retry | None:
    """The policy that a person wrote, a number being that of the attempts.  Raises UsageError."""
    if given is None or isinstance(given, Retry):
        return given
    if not is_whole(given, 1):
        raise UsageError(f"{name}: retry={given!r} is no policy", hint="a whole number of attempts from 1, or Retry(...)")
    return Retry(given)


def check_callable(name: str, **given: Any) -> None:
    """Raise UsageError naming the first of the options that is neither a function nor None."""
    for option, value in given.items():
        if value is not None and not callable(value):
            raise UsageError(f"{name}: {option}={value!r} is not a function", hint=f"{option}=f, not {option}=f(...)")


def check_effect(name: str, effect: str | None) -> None:
    """Raise UsageError unless `effect` is one of `EFFECTS`, or None."""
    if effect is not None and effect not in EFFECTS:
        raise UsageError(f"{name}: effect={effect!r} is not known", hint=f"one of {', '.join(EFFECTS)}")


class Done(NamedTuple):
    """What a `verify` function returns to say: it happened, and this was its result."""

    result: Any = None


class Activity:
    """A function with what is declared about it.  Calling it calls the function; `ctx.run` makes it durable.

    `effect` is none (may run any number of times), idempotent (running it again leaves the same world) or irreversible; None
    means not declared.  `verify(*args)` answers whether an irreversible call that left no result happened: True, False, or
    `Done(result)`.  `compensate(*args)` undoes a completed one when the task fails or is cancelled.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        effect: Effect | None = None,
        retry: Retry | int | None = None,
        timeout: str | float | None = None,
        verify: Callable[..., Any] | None = None,
        compensate: Callable[..., Any] | None = None,
        isolate: Literal["process"] | None = None,
        pickle: bool = False,
        name: str | None = None,
    ) -> None:
        if isolate not in (None, "process"):
            raise UsageError(f"isolate={isolate!r} is not known", hint='isolate="process", or leave it out')
        self.function = function
        self.name = name or _name_of(function)
        check_effect(self.name, effect)
        check_callable(self.name, verify=verify, compensate=compensate)
        self.effect: Effect | None = effect
        self.retry = retry_of(self.name, retry)
        self.timeout_s = None if timeout is None else seconds(timeout, f"timeout of {self.name}")
        self.verify = verify
        self.compensate = compensate
        self.isolate: Literal["process"] | None = isolate
        self.pickle = pickle
        self.is_async = inspect.iscoroutinefunction(_inner(function))
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<activity {self.name}>"

    @functools.cached_property
    def source(self) -> str:
        """8 hex digits that change when the function's text changes; empty when it has no text."""
        return source_digest(self.function)

    @functools.cached_property
    def ambiguous(self) -> bool:
        """Whether a parameter of the function has the name of an option of `ctx.run`."""
        return not self.parameters.isdisjoint(OPTIONS)

    @functools.cached_property
    def parameters(self) -> frozenset[str]:
        """The names of the function's own parameters."""
        try:
            return frozenset(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):
            return frozenset()


class Inner(Activity):
    """An activity whose function is a closure of the engine's own: it has no text that a user could change."""

    def __init__(self, function: Callable[..., Awaitable[Any]], *, name: str) -> None:
        super().__init__(function, name=name)
        self.source = ""


class Workflow:
    """An async function `(ctx, ...)` that is run durably.

    `default_effect` is what plain functions without a declared effect are taken to have; without it they are irreversible.
    `timeout` bounds the whole task, counted from its first start, across restarts.
    """

    def __init__(
        self,
        function: Callable[..., Awaitable[Any]],
        *,
        default_effect: Effect | None = None,
        timeout: str | float | None = None,
        name: str | None = None,
    ) -> None:
        if not inspect.iscoroutinefunction(_inner(function)):
            raise UsageError(f"{_name_of(function)} is not an async function", hint="write: async def name(ctx, ...)")
        if not inspect.signature(function).parameters:
            raise UsageError(f"{_name_of(function)} takes no context", hint="its first parameter is ctx")
        self.function = function
        self.name = name or _name_of(function)
        check_effect(self.name, default_effect)
        self.default_effect: Effect | None = default_effect
        self.timeout_s = None if timeout is None else seconds(timeout, f"timeout of {self.name}")
        functools.update_wrapper(self, function, updated=())

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise UsageError(
            f"{self.name} is a workflow and is not called directly",
            hint=f"run it with: ipyagent run {self.name} ..., or ipyagent_sessions.run_workflow",
        )

    @property
    def target(self) -> str:
        """`module:qualname`, by which another process may find it; functions of a notebook live in `__main__`."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    kind: str = "workflow"
    """What `tasks.kind` says of its tasks: workflow or agent."""
    model: str = ""
    """The model of an agent, for lists."""

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Check that the workflow can be called with these arguments.  Raises UsageError saying what is missing."""
        try:
            inspect.signature(self.function).bind(None, *args, **kwargs)
        except TypeError as error:
            raise UsageError(f"{self.name}: {error}", hint=f"its parameters are {self.parameters_text()}") from error

    def parameters_text(self) -> str:
        """The parameters after `ctx`, as written."""
        listed = list(inspect.signature(self.function).parameters.values())[1:]
        return ", ".join(str(p) for p in listed) or "none"

    def source_text(self) -> str:
        """The function's text, empty when it has none."""
        return _source(self.function)


@overload
def activity(function: Callable[..., Any], /) -> Activity: ...
@overload
def activity(
    *,
    effect: Effect | None = None,
    retry: Retry | int | None = None,
    timeout: str | float | None = None,
    verify: Callable[..., Any] | None = None,
    compensate: Callable[..., Any] | None = None,
    isolate: Literal["process"] | None = None,
    pickle: bool = False,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Activity]: ...


def activity(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a function as an activity; the options are those of `Activity`."""
    if function is not None:
        return Activity(function)
    return lambda f: Activity(f, **options)


@overload
def workflow(function: Callable[..., Awaitable[Any]], /) -> Workflow: ...
@overload
def workflow(
    *, default_effect: Effect | None = None, timeout: str | float | None = None, name: str | None = None
) -> Callable[[Callable[..., Awaitable[Any]]], Workflow]: ...


def workflow(function: Callable[..., Awaitable[Any]] | None = None, /, **options: Any) -> Any:
    """Declare an async function as a workflow; the options are those of `Workflow`."""
    if function is not None:
        return Workflow(function)
    return lambda f: Workflow(f, **options)


def source_digest(function: Callable[..., Any]) -> str:
    """8 hex digits of the function's text, empty when it has none."""
    text = _source(function)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest() if text else ""


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(_inner(function))
    except (OSError, TypeError):
        return ""


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial | Activity):
        function = function.func if isinstance(function, functools.partial) else function.function
    return function


def _name_of(function: Any) -> str:
    name = getattr(_inner(function), "__name__", None) or type(function).__name__
    if name == "<lambda>":
        raise UsageError("a lambda has no name to be recorded under", hint='use a def, or give name="..."')
    return str(name)
