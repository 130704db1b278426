"""Checks around the whole PyTorch suite."""

import sys
import sysconfig

import pytest


def _gil_is_off() -> bool:
    return not getattr(sys, "_is_gil_enabled", lambda: True)()


@pytest.fixture(scope="session", autouse=True)
def gil_stays_off():
    """On a free-threaded build the GIL is off when the suite starts and still off when it ends."""
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert _gil_is_off() or not free_threaded
    yield
    assert _gil_is_off() or not free_threaded
