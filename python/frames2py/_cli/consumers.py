"""Three consumers of different speed, and how old what they see is."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

import numpy as np

from .. import Engine
from ..publish import Snapshot
from .picture import drawable

__all__ = ["Consumer", "Publications", "Sampling", "Slow", "Waiting"]


class Publications:
    """When the `ingest()` call that made each publication began.

    A snapshot can be seen before the call that published it has returned, so the moment it became
    visible is not known exactly; the call's beginning is a moment just before. The producer
    records it after the call; consumers look it up after the fact.
    """

    def __init__(self, keep: int = 4096) -> None:
        self._began: dict[int, int] = {}
        self._keep = keep
        self.newest = 0

    def record(self, sequence: int, began_ns: int) -> None:
        """Note a publication. Called by the producer alone."""
        self._began[sequence] = began_ns
        self.newest = sequence
        while len(self._began) > self._keep:
            del self._began[next(iter(self._began))]

    def began(self, sequence: int) -> int | None:
        """When the call began, in nanoseconds of `time.perf_counter_ns`; None if not recorded."""
        return self._began.get(sequence)


class Consumer(threading.Thread, ABC):
    """One thread that looks at snapshots in its own way until the playback has ended.

    `seen` counts different snapshots. The age of what a look finds is the time since the `ingest()`
    call that published it began, at the moment the consumer has the snapshot in hand.
    """

    label = ""

    def __init__(self, engine: Engine, publications: Publications, ended: threading.Event) -> None:
        super().__init__(name=f"frames2py {self.label}", daemon=True)
        self.engine = engine
        self.ended = ended
        self.failure: BaseException | None = None
        self.seen = 0
        self.sequence: int | None = None
        self._publications = publications
        self._open: list[tuple[int, int]] = []  # looks whose publication is not recorded yet
        self._looks = 0
        self._total_ns = 0
        self._longest_ns = 0

    def run(self) -> None:
        """Observe; keep what goes wrong for the main thread to tell."""
        try:
            self.observe()
            self.settle()
        except BaseException as error:
            self.failure = error

    @abstractmethod
    def observe(self) -> None:
        """Look until the playback has ended."""

    def look(self, snapshot: Snapshot) -> None:
        """Account for having `snapshot` in hand."""
        now = time.perf_counter_ns()
        sequence = snapshot.meta.sequence
        if sequence != self.sequence:
            self.seen += 1
            self.sequence = sequence
        self._open.append((sequence, now))
        self.settle()

    def settle(self) -> None:
        """Work out the ages of looks whose publication has been recorded by now."""
        unsettled = []
        for sequence, seen_ns in self._open:
            began_ns = self._publications.began(sequence)
            if began_ns is None:
                if sequence > self._publications.newest:
                    unsettled.append((sequence, seen_ns))
                continue
            age = seen_ns - began_ns
            self._total_ns += age
            self._longest_ns = max(self._longest_ns, age)
            self._looks += 1
        self._open = unsettled

    @property
    def mean_age_ms(self) -> float | None:
        """Mean age of what the looks found, in milliseconds; None before the first."""
        return self._total_ns / self._looks / 1e6 if self._looks else None

    @property
    def longest_age_ms(self) -> float | None:
        """The longest of those ages."""
        return self._longest_ns / 1e6 if self._looks else None


class Waiting(Consumer):
    """Waits for every publication."""

    label = "every snapshot"

    def observe(self) -> None:
        """Block until there is something newer, look, repeat."""
        while True:
            ended = self.ended.is_set()  # asked first: what was published before the end is seen
            snapshot = self.engine.wait_for_newer(self.sequence, timeout=0.0 if ended else 0.1)
            if snapshot is not None:
                self.look(snapshot)
            elif ended:
                return
            else:
                self.settle()


class Sampling(Consumer):
    """Looks ten times a second, whatever there is."""

    label = "10 Hz sampling"

    def observe(self) -> None:
        """Look at the latest snapshot on a fixed beat."""
        due = time.monotonic()
        while not self.ended.wait(max(due - time.monotonic(), 0.0)):
            snapshot = self.engine.snapshot()
            if snapshot is not None:
                self.look(snapshot)
            due += 0.1


class Slow(Consumer):
    """Works on each snapshot for at least a quarter of a second before it asks for the next."""

    label = "slow computing"
    seconds = 0.25

    def observe(self) -> None:
        """Take the latest, compute its spectrum, idle away the rest of its time, repeat."""
        while not self.ended.is_set():
            snapshot = self.engine.wait_for_newer(self.sequence, timeout=0.1)
            if snapshot is None:
                continue
            self.look(snapshot)
            until = time.monotonic() + self.seconds
            frame = drawable(snapshot.frame)
            np.fft.rfft2(frame.astype(np.float32), axes=(0, 1))
            self.settle()
            self.ended.wait(max(until - time.monotonic(), 0.0))
