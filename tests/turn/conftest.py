"""The witness, gates and engine of the tests of running."""

from tests.run.conftest import clock, engine, gate, witness

__all__ = ["clock", "engine", "gate", "witness"]
