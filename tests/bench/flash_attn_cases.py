# flash_attn_cases.py: flash-attn's own tests of attention with flashphases in flash-attn's place, on a GPU: cases
# passed, failed, and refused, counted by what was refused. The file is fetched for the run and not kept; so are the
# helpers that it imports (padding, rotary embeddings), which are no attention.
# FLASHPHASES_LIBRARY=…/libflashphases.so python3 tests/bench/flash_attn_cases.py OUT.json [--jobs N] [--every K]
#   [--seconds S] [pytest's arguments]      every K-th of the cases, in N processes, as many as S seconds allow
# Needs git, pytest, einops and a network; exits with 77 where one is missing.
import argparse
import collections
import concurrent.futures
import functools
import importlib.util
import json
import multiprocessing
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "phases/library"))
REPOSITORY, TAG = "https://github.com/Dao-AILab/flash-attention", "v2.7.4.post1"
FUNCTIONS = ("flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
             "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache")


def skipping(function):
    """The same function, for which what is refused is a case skipped with the refusal's first words."""
    @functools.wraps(function)
    def call(*args, **kwargs):
        import pytest
        try:
            return function(*args, **kwargs)
        except NotImplementedError as error:
            pytest.skip("refused: " + str(error).split(" is ")[0])
    return call


def stand_in(folder):
    """A package flash_attn whose functions are ours; its other files are the fetched ones."""
    import flashphases.flash_attn as ours

    package, interface = types.ModuleType("flash_attn"), types.ModuleType("flash_attn.flash_attn_interface")
    package.__path__ = [str(folder / "flash_attn")]
    for module in (package, interface):
        for name in FUNCTIONS:
            setattr(module, name, skipping(getattr(ours, name)))
    interface._get_block_size_n = lambda *_: 64  # of the picture of P that dropout's cases ask for, which is refused
    sys.modules.update({"flash_attn": package, "flash_attn.flash_attn_interface": interface})


class Counts:
    """What pytest reports of each case. part: the first case and from one to the next."""

    def __init__(self, part, until):
        self.passed, self.failed, self.refused = 0, [], collections.Counter()
        self.part, self.until, self.all, self.left, self.no_memory = part, until, 0, 0, 0

    def pytest_collection_modifyitems(self, items):
        self.all = len(items)
        items[:] = items[self.part[0]::self.part[1]]
        self.left = len(items)

    def pytest_runtest_logstart(self):
        self.left -= 1

    def pytest_runtest_logfinish(self):
        import pytest
        if time.monotonic() > self.until and self.left:
            pytest.exit("no time is left")

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            self.refused[str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)] += 1
        elif report.failed and "OutOfMemoryError" in report.longreprtext:  # processes share the GPU's
            self.no_memory += 1
        elif report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call":
            self.passed += 1


def run_part(folder, part, seconds, arguments):
    """In a process of its own, whose modules stand_in() changes."""
    import pytest

    stand_in(folder)
    counts = Counts(part, time.monotonic() + seconds)
    pytest.main(["-q", "-p", "no:cacheprovider", str(folder / "tests/test_flash_attn.py"), *arguments],
                plugins=[counts])
    return counts.all, counts.left, counts.no_memory, counts.passed, counts.failed, counts.refused


def main():
    parser = argparse.ArgumentParser(description="flash-attn's own tests, with flashphases")
    parser.add_argument("out", help="the result file")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--every", type=int, default=1, help="of so many cases one is run")
    parser.add_argument("--seconds", type=float, default=1e9, help="no case begins later")
    options, arguments = parser.parse_known_args()
    missing = [name for name in ("torch", "pytest", "einops") if importlib.util.find_spec(name) is None]
    if missing or not shutil.which("git"):
        print("skipped: no", ", ".join(missing or ["git"]))
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        fetched = subprocess.run(["git", "clone", "-q", "--depth", "1", "--branch", TAG, REPOSITORY, name], text=True,
                                 stderr=subprocess.PIPE)
        if fetched.returncode != 0:
            print(f"skipped: {REPOSITORY} cannot be fetched: {fetched.stderr.strip()}")
            sys.exit(77)
        commit = subprocess.check_output(["git", "-C", name, "rev-parse", "HEAD"], text=True).strip()
        step = options.every * options.jobs
        with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
            parts = [pool.submit(run_part, pathlib.Path(name), (i * options.every, step), options.seconds, arguments)
                     for i in range(options.jobs)]
            alls, left, no_memory, passed, failed, refused = zip(*(part.result() for part in parts))
    result = {"repository": REPOSITORY, "tag": TAG, "commit": commit, "cases": alls[0], "not run": sum(left),
              "out of memory": sum(no_memory), "passed": sum(passed), "failed": sum(failed, []),
              "refused": dict(sum(refused, collections.Counter()).most_common())}
    pathlib.Path(options.out).write_text(json.dumps(result, indent=1))
    print(f"{result['passed']} passed, {len(result['failed'])} failed, {sum(result['refused'].values())} refused, "
          f"{sum(no_memory)} out of memory, {sum(left)} not run for want of time, of {alls[0]} cases of {commit}")
    sys.exit(1 if result["failed"] or not result["passed"] else 0)


if __name__ == "__main__":
    main()
