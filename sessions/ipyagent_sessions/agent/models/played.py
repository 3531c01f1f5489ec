"""What the models that play something share: a name that says so, and any way to be asked for a structured output."""

from __future__ import annotations

from pydantic_ai.models import Model
from pydantic_ai.profiles import ModelProfile


class PlayedModel(Model[None]):
    """A model whose answers stand written down.  `name` is `system` and what is played, as in "scripted:audit"."""

    def __init__(self, system: str, played: str) -> None:
        # what comes back is known, so any way to ask for a structured output is as good as the others
        super().__init__(profile=ModelProfile(supports_json_schema_output=True, supports_json_object_output=True))
        self._system = system
        self._name = f"{system}:{played}"

    @property
    def model_name(self) -> str:
        return self._name

    @property
    def model_id(self) -> str:
        return self._name

    @property
    def system(self) -> str:
        return self._system
