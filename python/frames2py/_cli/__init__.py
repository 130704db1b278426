"""The command line: `frames2py demo`, `frames2py watch`, `frames2py info`,
`frames2py convert`.

Exit status: 0 done, 1 the work failed (a bad file, an output that cannot be written), 2 a bad
command line, 130 interrupted with Ctrl-C, 141 the reader of the output went away.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import __version__
from . import convert, demo, info, watch
from .errors import CommandError, UsageError, describe

__all__ = ["main"]

INTERRUPTED = 128 + 2  # what a shell reports for a command ended by SIGINT
READER_GONE = 128 + 13  # and by SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        argv: The arguments after the program's name; `None` for those of this process.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a file name that is not text must not end the program
            reconfigure(errors="backslashreplace")
    parser = _parser()
    try:
        arguments = parser.parse_args(argv)
        try:
            status: int = arguments.run(arguments)
        except UsageError as error:
            arguments.parser.error(str(error))
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a failure still gets its line
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes once more on its way out; give it somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except (CommandError, OSError, MemoryError) as error:
        print(f"frames2py: error: {describe(error)}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="frames2py",
        description="Live frames from event cameras.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"frames2py {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (demo, watch, info, convert):
        command.add_parser(commands)
    return parser
