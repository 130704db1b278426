"""The event record."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["EVENT_DTYPE", "TRIGGER_DTYPE", "EventArray"]

#: One event: packed, little-endian, 13 bytes.
#:
#: ===== ======= ====== ==========================================
#: field dtype   offset meaning
#: ===== ======= ====== ==========================================
#: ``t`` ``<u8`` 0      time, µs, in any time domain, below 2**63
#: ``x`` ``<u2`` 8      column, 0 is left
#: ``y`` ``<u2`` 10     row, 0 is top
#: ``p`` ``u1``  12     polarity: 0 is OFF, every other value is ON
#: ===== ======= ====== ==========================================
#:
#: Arrays of events are 1-D and C-contiguous. Records with more fields, another field order or padding are
#: accepted wherever events are, as long as these four fields have exactly these dtypes.
EVENT_DTYPE = np.dtype([("t", "<u8"), ("x", "<u2"), ("y", "<u2"), ("p", "u1")])

#: One edge on a trigger input of the camera: packed, little-endian, 11 bytes. ``t`` is in µs on the clock of
#: the events, ``id`` the input, ``p`` the edge: 1 rising, 0 falling.
TRIGGER_DTYPE = np.dtype([("t", "<u8"), ("id", "<u2"), ("p", "u1")])

#: A 1-D C-contiguous structured array with the fields of :data:`EVENT_DTYPE`.
EventArray: TypeAlias = NDArray[np.void]
