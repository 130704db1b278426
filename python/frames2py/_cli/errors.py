"""Errors that end a command, and how they read."""

from __future__ import annotations

__all__ = ["CommandError", "UsageError", "describe"]


class CommandError(Exception):
    """The work failed: one line, exit status 1."""


class UsageError(Exception):
    """The command line is wrong in a way only the command can tell: usage, one line, exit status 2."""


def describe(error: BaseException) -> str:
    """The error in one line."""
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    elif isinstance(error, MemoryError):
        text = "not enough memory" + (f": {error}" if str(error) else "")
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())
