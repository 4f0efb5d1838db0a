"""A clock that jumps by years at every look changes nothing but the times that are written down."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.desk import COMMANDS, Desk, Done

pytestmark = pytest.mark.slow

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <sys/time.h>
static long jump(void) {
    static unsigned looks;
    static const long days[] = {0, 400, -400, 3, -3, 2000, -2000, 1};
    return days[__sync_fetch_and_add(&looks, 1) % 8] * 86400;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += jump();
    return failed;
}
time_t time(time_t *now) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (now) *now = read.tv_sec;
    return read.tv_sec;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    now->tv_sec = read.tv_sec;
    now->tv_usec = read.tv_nsec / 1000;
    return 0;
}
"""


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that, preloaded, makes the wall clock of a process and its children jump."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a compiler")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(CLOCK)
    library = folder / "clock.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(folder / "clock.c"), "-ldl"]
    subprocess.run(command, check=True)
    return str(library)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_clock_that_jumps_changes_nothing(
    desk: Desk, undisturbed: Callable[[str], Done], tmp_path: Path, clock: str, command: str
) -> None:
    assert desk.run(command, tmp_path / "jumping", LD_PRELOAD=clock) == undisturbed(command)
