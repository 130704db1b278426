"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
    """A binary file to write, which becomes ``path`` when the block ends.

    It is written under a hidden name beside ``path`` and moved there. If the block raises, it is removed and
    whatever is at ``path`` stays.

    Raises:
        FileExistsError: something is at ``path``, now or at the end, and ``overwrite`` is false.
        IsADirectoryError: a directory is.
        OSError: the file cannot be written or moved.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
        _move(temporary, path, overwrite=overwrite)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _move(temporary: str, path: str, *, overwrite: bool) -> None:
    if overwrite:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)  # unlike a rename, never onto something that has appeared meanwhile
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):  # no hard links on this file system
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        os.replace(temporary, path)
    else:
        os.unlink(temporary)
