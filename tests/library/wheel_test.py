"""wheel_test.py: the package as pip has it: a source archive is made, a wheel is made of it, and the wheel is installed
into a fresh virtual environment, where what python.py proves of the sources holds, too. Nothing is downloaded.
    python3 tests/library/wheel_test.py [--cuda]     (--cuda: the kernels as well, where nvcc is; takes an hour's CPU)
    python3 tests/library/wheel_test.py FILE.whl     (that wheel, in place of one that is made)
Exits with 77 and its reason where scikit-build-core, pip or venv is absent.
"""

import importlib.util
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_BYTES, MOST_LIBRARY = 60e6, 150e6
# manylinux_2_34: what AlmaLinux 9 has. Debian 12's compiler asks for no more; a newer system's may.
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29)}

for module in ("pip", "venv", "ensurepip", "scikit_build_core"):
    if importlib.util.find_spec(module) is None:
        print(f"skipped: no {module} in {sys.executable}")
        sys.exit(77)


def run(*command, folder, **variables):
    environment = {**os.environ, **variables}
    for name in ("FLASHPHASES_LIBRARY", "PYTHONPATH"):
        environment.pop(name, None)
    result = subprocess.run([str(word) for word in command], cwd=folder, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        sys.exit(f"{' '.join(str(word) for word in command)} ended with {result.returncode}:\n{result.stdout[-4000:]}")
    return result.stdout


def too_new(library):
    """The versions of the C and C++ libraries that it wants and that manylinux_2_34 does not have."""
    wanted = set(re.findall(r"\b(GLIBC|GLIBCXX)_([\d.]+)", run("objdump", "-T", library, folder=ROOT)))
    return [f"{name}_{text}" for name, text in sorted(wanted) if tuple(map(int, text.split("."))) > NEWEST[name]]


def made(work, cuda):
    """Sources into an archive, the archive into a wheel."""
    run(sys.executable, "-c", f"import scikit_build_core.build as b; b.build_sdist({str(work)!r})", folder=ROOT)
    archive, = work.glob("flashphases-*.tar.gz")
    print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", work / "out",
        archive, folder=work, SKBUILD_CMAKE_DEFINE="" if cuda else "FLASH_CUDA=OFF")
    wheel, = (work / "out").glob("*.whl")
    return wheel


def main():
    given = [pathlib.Path(word).resolve() for word in sys.argv[1:] if word.endswith(".whl")]
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        wheel = given[0] if given else made(work, "--cuda" in sys.argv)
        version = wheel.name.split("-")[1]
        if wheel.name.split("-")[2:4] != ["py3", "none"]:
            sys.exit(f"the wheel is {wheel.name}; expected one of every Python and no ABI: py3-none")
        with zipfile.ZipFile(wheel) as file:
            sizes = {info.filename: info.file_size for info in file.infolist()}
        libraries = [name for name in sizes if ".so" in name]
        folders = ("flashphases/", f"flashphases-{version}.dist-info/")
        strangers = [name for name in sizes if not name.startswith(folders)]
        if libraries != ["flashphases/libflashphases.so"] or strangers:
            sys.exit(f"the wheel has {libraries} and {strangers}; expected flashphases/libflashphases.so alone")
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, its library {sizes[libraries[0]] / 1e6:.1f} MB")
        if wheel.stat().st_size > MOST_BYTES or sizes[libraries[0]] > MOST_LIBRARY:
            sys.exit(f"expected at most {MOST_BYTES / 1e6:.0f} and {MOST_LIBRARY / 1e6:.0f} MB")

        with zipfile.ZipFile(wheel) as file:
            newer = too_new(file.extract(libraries[0], work))
        print("manylinux_2_34:", "yes" if not newer else f"no, wants {', '.join(newer)}")
        if newer and not given and tuple(map(int, platform.libc_ver()[1].split("."))) <= (2, 36):
            sys.exit("expected yes on a system as old as this one")

        run(sys.executable, "-m", "venv", work / "fresh", folder=work)
        python = work / "fresh/bin/python"
        run(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel, folder=work)
        says = run(python, "-c", "import flashphases as f; print(f.__file__, f.__version__, "
                   "f.library.flashphases_version().decode())", folder=work).split()
        if not says[0].startswith(str(work / "fresh")) or says[1:] != [version, version]:
            sys.exit(f"the package is {says}; expected {version} of {work / 'fresh'}")
        print(run(python, ROOT / "tests/library/python.py", "--installed", folder=work).splitlines()[-1])


if __name__ == "__main__":
    main()
