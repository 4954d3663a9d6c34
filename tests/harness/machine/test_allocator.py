"""Memory of ranks: settings of the C library, and the library that keeps large blocks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine import allocator_environment, large_blocks, large_tensors
from harness.machine._allocator import MAPPED_ABOVE

CALLS = """
import ctypes, os, random, resource, sys, threading
from harness.machine import keep_heap
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
c.realloc.restype, c.realloc.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]
c.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
c.malloc_usable_size.restype, c.malloc_usable_size.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def resident(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
"""

GROWS_AND_SHRINKS = """
size = int(sys.argv[1]) << 20
if "keep" in sys.argv and not keep_heap(size):
    sys.exit(3)
def epoch():
    blocks = [c.malloc(size) for _ in range(8)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in reversed(blocks):
        c.free(block)
for _ in range(3):
    epoch()
before = faults()
for _ in range(5):
    epoch()
print(faults() - before)
"""

ANY_CALLS = """
def play(seed):
    draw, held = random.Random(seed), {}
    def check(block):
        size, byte = held[block]
        for at in (0, size // 2, size - 1):
            assert ctypes.string_at(block + at, 1)[0] == byte, (seed, hex(block), size, at)
    for step in range(400):
        what = draw.choice(["malloc", "align", "realloc", "free"])
        size = draw.choice([100, 1 << 16, (1 << 20) - 1, 1 << 20, draw.randrange(1 << 20, 12 << 20)])
        if what in ("realloc", "free") and held:
            old = draw.choice(list(held))
            check(old)
            kept, byte = held.pop(old)
            if what == "free":
                c.free(old)
                continue
            block = c.realloc(old, size)
            assert ctypes.string_at(block, 1)[0] == byte
            assert ctypes.string_at(block + min(kept, size) - 1, 1)[0] == byte
        elif what == "align":
            place, alignment = ctypes.c_void_p(), draw.choice([64, 4096, 1 << 21])
            assert c.posix_memalign(ctypes.byref(place), alignment, size) == 0
            block = place.value
            assert block % alignment == 0
        else:
            block = c.malloc(size)
        assert c.malloc_usable_size(block) >= size
        held[block] = size, draw.randrange(256)
        ctypes.memset(block, held[block][1], size)
        if len(held) > 12:
            old = draw.choice(list(held))
            check(old)
            del held[old]
            c.free(old)
    for block in list(held):
        check(block)
        c.free(block)
players = [threading.Thread(target=play, args=(seed,)) for seed in range(3)]
for player in players: player.start()
for player in players: player.join()
child = os.fork()
if not child:
    play(9)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
place = ctypes.c_void_p()
assert c.posix_memalign(ctypes.byref(place), 3, 1 << 21) == 22
assert c.realloc(c.malloc(1 << 21), 0) is None
print("played")
"""

MERGES = """
play = [c.malloc(size << 20) for size in (8, 8, 8, 8)]
for block in play: ctypes.memset(block, 1, 8 << 20)
before = faults()
for block in (play[1], play[3], play[2]): c.free(block)
whole = c.malloc(24 << 20)
ctypes.memset(whole, 1, 24 << 20)
print(whole == min(play[1:]), faults() - before < 20)
"""


RESTARTS = """
import os, sys
from harness.machine import restart_in_allocator_environment
print("began", *sys.argv[1:], flush=True)
restart_in_allocator_environment()
print("LD_PRELOAD" in os.environ)
"""


def told(script: str, *words: str, preload: Path | None = None, kept: str = "") -> str:
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    if preload is not None:
        environment |= {"LD_PRELOAD": str(preload), "HALOSCOPE_LARGE_BLOCKS": kept}
    command = [sys.executable, "-c", CALLS + script, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 3:
        pytest.skip("this C library has no mallopt")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def library() -> Path:
    found = large_blocks()
    if found is None:
        pytest.skip("no C compiler")
    return found


def test_memory_that_was_used_once_is_not_faulted_in_again() -> None:
    assert int(told(GROWS_AND_SHRINKS, "4", "keep")) < 100 < int(told(GROWS_AND_SHRINKS, "4"))


def test_blocks_that_are_mapped_afresh_otherwise_are_kept(library: Path) -> None:
    kept, afresh = (int(told(GROWS_AND_SHRINKS, "40", "keep", preload=each)) for each in (library, None))
    assert kept < 100 < afresh
    assert int(told(GROWS_AND_SHRINKS, "40", preload=library, kept="1")) < 100


def test_the_library_does_nothing_before_it_is_told_to(library: Path) -> None:
    assert int(told(GROWS_AND_SHRINKS, "40", preload=library)) > 100


def test_any_calls_from_several_threads_and_after_a_fork(library: Path) -> None:
    assert told(ANY_CALLS, preload=library, kept="1") == "played"


def test_blocks_from_before_it_kept_any_are_freed_and_moved(library: Path) -> None:
    """The first player's blocks are the C library's; they are freed after the library has been told to keep blocks."""
    begins = "keep_heap(1 << 30) if seed == 9 and step == 200 else None\n"
    script = ANY_CALLS.replace("        what = draw", f"        {begins}        what = draw")
    assert begins in script
    assert told(script, preload=library) == "played"


def test_freed_neighbours_are_one_block(library: Path) -> None:
    assert told(MERGES, preload=library, kept="1") == "True True"


def test_processes_with_tensors_that_are_mapped_afresh_keep_them(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert large_tensors(MAPPED_ABOVE) == {}
    assert large_tensors(MAPPED_ABOVE + 1) == {"LD_PRELOAD": str(library), "HALOSCOPE_LARGE_BLOCKS": "1"}


def test_the_user_s_allocator_is_loaded_before_it(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    both = allocator_environment()
    assert both == {"LD_PRELOAD": f"libother.so:{library}"}
    monkeypatch.setenv("LD_PRELOAD", both["LD_PRELOAD"])
    assert allocator_environment() == both


def test_a_process_restarts_once_to_load_it(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its arguments; not where it is loaded or cannot be built."""
    monkeypatch.delenv("HALOSCOPE_RESTARTED", raising=False)
    twice, once = told(RESTARTS, "word").splitlines(), told(RESTARTS, "word", preload=library).splitlines()
    assert twice == ["began word", "began word", "True"] and once == twice[1:]
    monkeypatch.setenv("HALOSCOPE_RESTARTED", "1")
    assert told(RESTARTS).splitlines() == ["began", "False"]
    monkeypatch.delenv("HALOSCOPE_RESTARTED")
    monkeypatch.setenv("CC", "no-such-compiler")
    assert told(RESTARTS).splitlines() == ["began", "False"]


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_huge_pages_where_it_cannot_be_built(compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    assert allocator_environment() == {"THP_MEM_ALLOC_ENABLE": "1"}
    assert not list(tmp_path.rglob("*.so"))


def test_memory_that_is_left_is_that_below_a_limit() -> None:
    code = (
        "import resource\nfrom pathlib import Path\nfrom harness.machine import memory_left\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "whole = memory_left()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))\n"
        "assert 1 << 20 < memory_left() <= 64 << 20 < whole, (memory_left(), whole)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
