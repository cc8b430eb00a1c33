# flash_attn_cases.py: flash-attn's own tests of attention with flashphases in flash-attn's place, on a GPU: cases
# passed, failed, and refused, counted by what was refused. The file is fetched for the run and not kept; so are the
# helpers that it imports (padding, rotary embeddings), which are no attention.
# FLASHPHASES_LIBRARY=…/libflashphases.so python3 tests/bench/flash_attn_cases.py OUT.json [pytest's arguments]
# Needs git, pytest, einops and a network; exits with 77 where one is missing.
import collections
import functools
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
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
    """What pytest reports of each case."""

    def __init__(self):
        self.passed, self.failed, self.refused = 0, [], collections.Counter()

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            self.refused[str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)] += 1
        elif report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call":
            self.passed += 1


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: flash_attn_cases.py OUT.json [pytest's arguments]")
    missing = [name for name in ("torch", "pytest", "einops") if importlib.util.find_spec(name) is None]
    if missing or not shutil.which("git"):
        print("skipped: no", ", ".join(missing or ["git"]))
        sys.exit(77)
    import pytest
    with tempfile.TemporaryDirectory() as name:
        fetched = subprocess.run(["git", "clone", "-q", "--depth", "1", "--branch", TAG, REPOSITORY, name], text=True,
                                 stderr=subprocess.PIPE)
        if fetched.returncode != 0:
            print(f"skipped: {REPOSITORY} cannot be fetched: {fetched.stderr.strip()}")
            sys.exit(77)
        commit = subprocess.check_output(["git", "-C", name, "rev-parse", "HEAD"], text=True).strip()
        folder, counts = pathlib.Path(name), Counts()
        stand_in(folder)
        pytest.main(["-q", "-p", "no:cacheprovider", str(folder / "tests/test_flash_attn.py"), *sys.argv[2:]],
                    plugins=[counts])
    result = {"repository": REPOSITORY, "tag": TAG, "commit": commit, "passed": counts.passed,
              "failed": counts.failed, "refused": dict(counts.refused.most_common())}
    pathlib.Path(sys.argv[1]).write_text(json.dumps(result, indent=1))
    print(f"{counts.passed} passed, {len(counts.failed)} failed, {sum(counts.refused.values())} refused of {commit}")
    sys.exit(1 if counts.failed or not counts.passed else 0)


if __name__ == "__main__":
    main()
