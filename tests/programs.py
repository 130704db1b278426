"""Programs in processes of their own. None outlives the test that starts it, however that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

# Seconds after which a program is taken to hang. `conftest.py` makes it fit the time that a test has.
limit = 90.0


def grace() -> float:
    """Seconds that a program which hangs is given to write where it is."""
    return min(5.0, limit / 18)


# The signal's handler goes round the interpreter, and forked children inherit it.
PRELUDE = """
import faulthandler, signal
if hasattr(faulthandler, "register"):
    faulthandler.register(signal.SIGUSR1)
else:
    faulthandler.dump_traceback_later(LATER)
del faulthandler, signal
"""


class Program:
    """A Python program that runs. It is ended, with all that it forked, where the ``with`` block is left."""

    def __init__(self, program: str, *arguments: object, options: tuple[str, ...] = ()) -> None:
        code = PRELUDE.replace("LATER", str(limit - grace())) + textwrap.dedent(program)
        self.hangs = False
        self.process = subprocess.Popen(
            [sys.executable, *options, "-c", code, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._ended = threading.Event()
        self._alarm = threading.Timer(limit, self.give_up)
        self._alarm.daemon = True
        self._alarm.start()

    def line(self) -> bytes:
        """The next line of what it prints, stripped. Fails as `finish` does if it ends before."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.finish()
        return line.strip()

    def interrupt(self) -> None:
        """Sends SIGINT to it, and not to what it forked."""
        self.process.send_signal(signal.SIGINT)

    def finish(self, status: int = 0) -> tuple[bytes, str]:
        """The rest of what it prints, and what it writes to stderr. Fails if it hangs or fails."""
        out, err = self.process.communicate()
        self._ended.set()
        self._alarm.cancel()
        if self.hangs:
            pytest.fail(f"hangs; wrote {out!r} and {err.decode()}")
        assert self.process.returncode == status, f"exit status {self.process.returncode}\n{err.decode()}"
        return out, err.decode()

    def give_up(self) -> None:
        """Has it write where all its threads are, and kills it."""
        self.hangs = True
        if sys.platform != "win32":
            self._signal_all(signal.SIGUSR1)
            self._ended.wait(grace())
        self._kill_all()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._alarm.cancel()
        if not self._ended.is_set():
            self._kill_all()
            self._ended.set()
        self._alarm.join()
        with self.process:  # closes its pipes and waits for it
            pass

    def _kill_all(self) -> None:
        if sys.platform == "win32":
            self.process.kill()
        else:
            self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: int) -> None:
        """To it and all that it forked, which have its group, and its pipes."""
        with contextlib.suppress(
            ProcessLookupError, PermissionError
        ):  # the second is macOS's of a dead group
            os.killpg(self.process.pid, number)


def execute(
    program: str, *arguments: object, options: tuple[str, ...] = (), status: int = 0
) -> tuple[list[str], str]:
    """The words that a program prints, and what it writes to stderr."""
    with Program(program, *arguments, options=options) as running:
        out, err = running.finish(status)
    return out.decode().split(), err


def run(program: str, *arguments: object, options: tuple[str, ...] = (), status: int = 0) -> list[str]:
    """The words that a program prints which writes nothing to stderr."""
    out, err = execute(program, *arguments, options=options, status=status)
    assert err == "", err
    return out


def interrupt_when_waiting(program: str, *arguments: object) -> list[str]:
    """Sends SIGINT once the program has printed that it is waiting; the words that it prints then."""
    with Program(program, *arguments) as running:
        assert running.line() == b"waiting"
        time.sleep(0.4)  # so that it is in the wait; earlier would be an interrupt all the same
        running.interrupt()
        out, err = running.finish()
    assert err == "", err
    return out.decode().split()
