"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["Draft", "replacing"]


class Draft:
    """A file in the making: hidden beside its target, and moved onto it at the end.

    Raises:
        FileExistsError: something is at ``path``, and ``overwrite`` is false.
        IsADirectoryError: a directory is.
        FileNotFoundError: the folder does not exist.
        OSError: the file cannot be made.
    """

    def __init__(self, path: str, *, overwrite: bool) -> None:
        self.target = os.path.abspath(path)
        if os.path.isdir(self.target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.target)
        folder, name = os.path.split(self.target)
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, "the folder does not exist", folder)
        self._overwrite = overwrite
        self._refuse_existing("pass overwrite=True to replace the file that is there")
        self.path = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.partial")
        # The rights of a new file are as the process wants them; whoever writes it goes on with it.
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))

    def _refuse_existing(self, advice: str) -> None:
        if not self._overwrite and os.path.lexists(self.target):
            raise FileExistsError(errno.EEXIST, advice, self.target)

    def publish(self, *, kept: bool = False) -> None:
        """Move the file onto its target.

        Raises:
            FileExistsError: something has appeared there that must not be replaced. The draft stays as it is
                until it is discarded; with ``kept`` it is not going to be, and the message says where it is.
        """
        advice = "a file appeared here meanwhile"
        if kept:
            advice += f"; what was written is in {self.path}"
        self._refuse_existing(advice)
        if self._overwrite:
            os.replace(self.path, self.target)
            return
        try:
            os.link(self.path, self.target)  # unlike a rename, never onto what appears in this very moment
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, advice, self.target) from None
        except (OSError, NotImplementedError):  # a file system without hard links
            os.replace(self.path, self.target)
        else:
            os.unlink(self.path)

    def discard(self) -> None:
        """Give it up. What is at the target stays as it is."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)


@contextlib.contextmanager
def replacing(path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
    """A binary file to write, which becomes ``path`` when the block ends, unless that raises.

    Raises:
        As :class:`Draft`, also at the end.
    """
    draft = Draft(path, overwrite=overwrite)
    try:
        with open(draft.path, "wb") as file:
            yield file
        draft.publish()
    except BaseException:
        draft.discard()
        raise
