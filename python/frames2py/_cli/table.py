"""The small live table: redrawn in place on a terminal, a plain line per second elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

__all__ = ["LiveTable", "is_live"]


def is_live(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that can be redrawn."""
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        return False
    return sys.platform != "win32" or "WT_SESSION" in os.environ


class LiveTable:
    """Shows progress on standard output.

    Args:
        rows: The table's lines now, for a terminal.
        line: The same in one line, for a pipe or a file.
    """

    def __init__(self, rows: Callable[[], Sequence[str]], line: Callable[[], str]) -> None:
        self._rows = rows
        self._line = line
        self._live = is_live(sys.stdout)
        self._drawn = 0

    @property
    def interval(self) -> float:
        """Seconds between updates."""
        return 0.1 if self._live else 1.0

    def update(self) -> None:
        """Show the present state."""
        if not self._live:
            print(self._line(), flush=True)
            return
        # A line that wraps would break the count of lines to go up.
        width = max(shutil.get_terminal_size().columns - 1, 1)
        rows = [row[:width] for row in self._rows()]
        sys.stdout.write(self._back() + "".join(f"{row}\x1b[K\n" for row in rows))
        sys.stdout.flush()
        self._drawn = len(rows)

    def clear(self) -> None:
        """Take a table off the terminal; lines already printed stay."""
        if self._drawn:
            sys.stdout.write(self._back() + "\x1b[J")
            self._drawn = 0

    def _back(self) -> str:
        return f"\x1b[{self._drawn}F" if self._drawn else ""
