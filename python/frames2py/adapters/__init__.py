"""Readers of recordings, a module per file format.

Each has ``open(path, *, sensor_size=None, batch_size=None, ...)``, which returns a
:class:`~frames2py.adapters.Reader`. A format's module is imported by name, as
``from frames2py.adapters import evt``, so that a format costs nothing until it is used.
"""

from ._reader import Reader

__all__ = ["Reader"]
