"""A call is waited for no longer than is said, and a process does not wait for it at its end, either."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from compatcheck.core.patience import wait_for

PROGRAM = """
import sys, time
from compatcheck.core.patience import leave, wait_for
import atexit
atexit.register(time.sleep, 60)
try:
    wait_for(lambda: time.sleep(60), 0.1)
except TimeoutError:
    print("given up")
    leave(4)
"""


def test_what_comes_in_time_is_returned_and_an_error_is_raised():
    assert wait_for(lambda: 7, 5) == 7
    with pytest.raises(ZeroDivisionError):
        wait_for(lambda: 1 // 0, 5)


def test_what_takes_longer_is_given_up_and_does_not_hold_the_process():
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (4, "given up\n")
    assert time.monotonic() - began < 20
