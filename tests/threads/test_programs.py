"""Programs that hang, as the tests of processes find them."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest
from programs import Program

FORKING = """
import os, threading, time
def child_hangs():
    os.write(1, b"child\\n")  # whole, which `print` need not be
    time.sleep(1e6)
def thread_hangs():
    os.write(1, b"thread\\n")
    time.sleep(1e6)
def parent_hangs():
    threading.Thread(target=thread_hangs, daemon=True).start()
    os.wait()
if os.fork() == 0:
    child_hangs()
parent_hangs()
"""
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")


@FORKS
def test_a_program_that_hangs_says_where_all_of_it_was() -> None:
    with Program(FORKING) as running:
        assert {running.line(), running.line()} == {b"child", b"thread"}
        running.give_up()
        with pytest.raises(pytest.fail.Exception, match="hangs; wrote b''") as caught:
            running.finish()
    said = str(caught.value)
    assert "child_hangs" in said and "parent_hangs" in said
    # Without the GIL, faulthandler shows the thread that the signal came to.
    assert "thread_hangs" in said or not GIL


@FORKS
def test_a_test_that_fails_leaves_no_process_and_no_pipe(tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)

    end = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    program = Program("import sys; held = open(sys.argv[1], 'wb')\n" + FORKING, held)

    def fail() -> None:
        with program:
            assert {program.line(), program.line()} == {b"child", b"thread"}
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    os.set_blocking(end, True)
    assert os.read(end, 1) == b""  # not before all who held it are gone
    os.close(end)
    process = program.process
    assert process.stdout is not None and process.stdout.closed
    assert process.stderr is not None and process.stderr.closed
    assert process.returncode is not None


def test_a_program_that_ends_early_says_why() -> None:
    with Program("sys.exit()") as running, pytest.raises(AssertionError, match=r"(?s)status 1.*NameError"):
        running.line()


def test_a_program_that_is_well_writes_nothing_else() -> None:
    with Program("print(5); import sys; sys.exit(3)") as running:
        assert running.finish(status=3) == (f"5{os.linesep}".encode(), "")
