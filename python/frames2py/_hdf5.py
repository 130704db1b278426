"""h5py and hdf5plugin, which are optional, as readers and writers of HDF5 get at them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

__all__ = ["BLOSC", "ECF", "Closed", "File", "backend", "filters_missing"]

#: Numbers of HDF5 filters.
BLOSC = 32001
ECF = 0x8ECF

#: A chunk larger than this is not read: HDF5 has to hold it whole.
MAX_CHUNK = 1 << 30


def backend(user: str, extra: str) -> ModuleType:
    """h5py, with hdf5plugin's filters known to it."""
    try:
        import h5py
        import hdf5plugin  # noqa: F401 - tells HDF5 where its filters are
    except ImportError as error:
        name = error.name or "h5py"
        message = f"{user} needs {name}; install it with: pip install 'frames2py[{extra}]'"
        raise ImportError(message, name=name) from error
    module: ModuleType = h5py
    return module


class Closed(ValueError):
    """A file was closed while it was read."""


class File:
    """An HDF5 file to read. Threads that use it take turns; closing waits for the one at it."""

    def __init__(self, path: str, h5py: ModuleType) -> None:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path!r} is no regular file, and HDF5 needs one")
        with open(path, "rb"):
            pass  # refused here, it is with an exception that tells why
        self.path = path
        self.h5py = h5py
        self.closed = False
        self._lock = threading.RLock()
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
        with self.use(f"opening {path!r}"):
            self.id = h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, fapl=access)

    @contextlib.contextmanager
    def use(self, what: str) -> Iterator[None]:
        """Whatever HDF5 finds wrong meanwhile is a ValueError."""
        with self._lock:
            if self.closed:
                raise Closed("the reader is closed")
            try:
                yield
            except (OSError, RuntimeError, KeyError, TypeError) as error:
                if self.closed:  # by a signal's handler, meanwhile
                    raise Closed("the reader is closed") from error
                reason = error.args[0] if error.args else error
                raise ValueError(f"HDF5 failed at {what}: {reason}") from error

    def close(self) -> None:
        with self._lock:
            if not self.closed:
                self.closed = True
                self.id.close()


def filters_missing(h5py: ModuleType, dataset: Any) -> list[str]:
    """The filters that a dataset was written with and that are not there."""
    pipeline = dataset.get_create_plist()
    missing = []
    for i in range(pipeline.get_nfilters()):
        number, _, _, name = pipeline.get_filter(i)
        if not h5py.h5z.filter_avail(number):
            text = name.decode("utf-8", "replace") if name else ""
            missing.append(f"{number} ({text})" if text else str(number))
    return missing
