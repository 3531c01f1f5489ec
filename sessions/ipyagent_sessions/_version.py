"""The version, written once: the build reads it here, the events and the exchange between kernel and server name it."""

__version__ = "0.1.0"
