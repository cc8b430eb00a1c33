# run.py: tests of the tests. Each mutant of the lists beside this file makes a source wrong in one named way, and the
# test that its entry names must notice. Deleting any __syncthreads() of a phase's kernel must make the checked
# simulator object. Uses the objects of a built tree (Ninja) and compiles only what a mutant changes.
#   python3 tests/mutants/run.py BUILD             one of each area, picked by a hash of the sources, kept by that hash
#   python3 tests/mutants/run.py BUILD all         all of them
#   python3 tests/mutants/run.py BUILD simulator   those of an area, of a list (phase07), or one: phase07/mask-ignored;
#                                                  several such words, in their order
# --jobs N runs N at a time; --json FILE writes the verdicts as a results file (docs/results/mutants.json), anew after
# each; --seconds N begins no mutant later than that; --but FILE … leaves out what these files have a verdict of.
#   python3 tests/mutants/run.py --merge FILE … --json docs/results/mutants.json    joins files; the later one counts
# Exits with 1 if one survives, does not apply or does not compile, or if another test than its own notices it.
import argparse
import collections
import concurrent.futures
import datetime
import functools
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import mutants  # noqa: E402

ROOT = mutants.ROOT
CPU_SECONDS = 300  # for one run of a test program; a busy computer is no test, so no clock on the wall but a wide one
WALL_SECONDS = 1800
NO_CHECKED = "CMakeFiles/flash_common.dir/phases/interface/where.cpp.o"  # says whether there are checked kernels
SKIPPED, NO_SUCH_TEST = 77, "ERROR: there is no such test case"  # tests/doctest_main.cpp
COMPILER = "bin/flash-launches"  # stands before g++ where kernel files are compiled
CHECK_LIBRARY = "libflash_simt.a"  # what ./flash check links
# Which programs a test starts, beside its own. Of a list that is named after a script, the script is the test.
STARTED = {"app": ["flash-phases"], "tour": ["flash-phases", "flash-wrong-prediction"],
           "exercises": ["flash-exercise"], "player": ["flash-phases", "flash-recordings"],
           "flash_ring": ["flash-ring"], "flash_ring_faults": ["flash-ring"]}
UNJUDGED = ("left", "skipped")  # for want of time; for want of what its test needs
TREE = ["flash", "cmake", "sim", "gpu", "phases", "tests", "docs", ".devcontainer", ".github"]  # what it may read


class Failed(Exception):
    """Something that a mutant needs did not compile or link."""


def shell(command, **options):
    return subprocess.run(command, shell=True, capture_output=True, text=True, **options)


def barriers():
    """Every __syncthreads() of the phases' kernels, as a mutant without it."""
    for path in sorted([*ROOT.glob("phases/*/*.cuh"), *ROOT.glob("phases/*/steps/*.cuh")]):
        file = path.relative_to(ROOT)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if "__syncthreads();" in line:
                name = f"barrier@{file}@{number}"
                yield mutants.Mutant(f"phase{file.parts[1][:2]}", name, "", [(str(file), number)], "*checked: clean*")


def changed_files(mutant):
    if not mutant.name.startswith("barrier@"):
        return mutants.applied(mutant)
    (file, number), = mutant.edits
    lines = (ROOT / file).read_text().splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace("__syncthreads();", "")
    return {file: "".join(lines)}


class Build:
    """A built tree: how its programs are linked, how its objects are compiled, and from what."""

    def __init__(self, folder):
        self.folder = folder
        self.depends = {}
        lines = iter(self.ninja("-t deps").splitlines())
        for line in lines:
            if line and not line.startswith(" "):
                target = line.split(":")[0]
                self.depends[target] = set()
            elif line:
                self.depends[target].add(os.path.normpath(line.strip()))

    def ninja(self, words):
        return shell(f"ninja {words}", cwd=self.folder, check=True).stdout

    @functools.lru_cache(maxsize=None)
    def command(self, target):
        return self.ninja(f"-t commands -s {target}").strip()

    @functools.lru_cache(maxsize=None)
    def link(self, target):
        """The link command without what is around it."""
        return re.sub(r"^: && | && .*", "", self.command(target))

    @functools.lru_cache(maxsize=None)
    def members(self, archive):
        return re.findall(r"^    ([^|\n]*\.o)$", self.ninja(f"-t query {archive}"), re.M)

    @functools.lru_cache(maxsize=None)
    def objects(self, target):
        """The objects that a program is linked from, those of its archives too."""
        found = []
        for word in self.link(target).split():
            if word.endswith(".o"):
                found.append(word)
            elif word.endswith(".a") and (self.folder / word).exists():
                found += [name for name in self.members(word) if "/sim/cuda/" not in name]  # ./flash check alone has it
        return sorted({name for name in found if "_gpu.dir/" not in name})  # judged on the simulators alone

    def reach(self, mutant):
        """How many objects of a mutant's test are made from the files that it changes."""
        if mutants.is_script(mutant.program):
            return 0
        files = {file for file, _ in mutant.edits}
        compiler = any(file.startswith("sim/compiler/") for file in files)
        return sum(compiler and COMPILER in self.command(name) or
                   any(path.endswith(f"/{file}") for path in self.depends.get(name, ()) for file in files)
                   for name in self.objects(f"bin/{mutant.program}_test"))

    def compiles(self, target, flags, output):
        """The command that compiles an object, with more flags and into another file."""
        return re.sub(r" -MD -MT \S+ -MF \S+ -o \S+", f" {flags} -o {output}", self.command(target))


class Trial:
    """One mutant: a folder with its files, where #include finds them first, and the programs made with them."""

    def __init__(self, build, mutant, unchecked):
        self.build, self.mutant, self.unchecked = build, mutant, unchecked
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mutant-"))
        self.files = changed_files(mutant)
        for file, text in self.files.items():
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / file).write_text(text)
        self.environment = {**os.environ, "FLASH_PROGRAM": str(self.folder / "flash-phases")}
        self.compiler, self.skipped = None, False

    def verdict(self):
        """(kind, by whom): caught, SURVIVED, MOVED, BROKEN, or skipped: its test cannot be made on this computer."""
        program = self.mutant.program
        if any(file.startswith("sim/compiler/") for file in self.files):
            self.relink(COMPILER, self.folder / "flash-launches", "all")
            self.compiler = self.folder / "flash-launches"
        if mutants.is_script(program):
            return self.verdict_of_script()
        # Most kernels are caught on the fast simulator, in a program without the checked one (else what disagrees with
        # the checked one would count as caught). Only those that are not are compiled for it too.
        machines = ["checked"] if self.mutant.name.startswith("barrier@") else ["all"]
        if program.startswith("phase") and machines == ["all"]:
            machines = ["sim", "all"]
        for machine in machines:
            fresh = self.relink(f"bin/{program}_test", self.folder / "test", machine)
            if machine == "sim" and not fresh:
                continue  # the fast simulator has no part in it
            for started in STARTED.get(program, []):
                if (self.build.folder / "bin" / started).exists():  # flash-ring is made where there is MPI
                    self.relink(f"bin/{started}", self.folder / started, machine)
            for library in re.findall(r" (\S+\.so[.\d]*)(?= |$)", self.build.link(f"bin/{program}_test")):
                self.environment["LD_PRELOAD"] = str(self.folder / "library.so")  # of two of a name the first counts
                self.relink(library, self.folder / "library.so", machine)
            if self.fails(self.mutant.noticed, []):
                return "caught", self.by
        if self.skipped:  # with all machines that there are
            return "skipped", self.mutant.noticed
        for of_program in (["--source-file=*_test.cpp"], ["--source-file-exclude=*_test.cpp"]):
            if not self.mutant.name.startswith("barrier@") and self.fails("*", of_program):
                return "MOVED", f"{self.by}, not by: {self.mutant.noticed}"
        return "SURVIVED", ""

    def verdict_of_script(self):
        """The script runs in a copy of the tree and beside a copy of the build, both with the mutant."""
        tree, build = self.folder / "tree", self.folder / "build"
        tree.mkdir()
        for name in TREE:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, tree / name)
        for file, text in self.files.items():
            (tree / file).write_text(text)
        (build / "bin").mkdir(parents=True)
        for path in [*self.build.folder.iterdir(), *(self.build.folder / "bin").iterdir()]:
            copy = build / path.relative_to(self.build.folder)
            if not copy.exists():
                copy.symlink_to(path)
        for started in STARTED.get(self.mutant.program, []):
            (build / "bin" / started).unlink()
            self.relink(f"bin/{started}", build / "bin" / started, "all")
        self.settings_of_check(tree, build / "check.settings")
        tests = json.loads(shell(f"ctest --show-only=json-v1 -R '^{self.mutant.program}(_test)?$'",
                                 cwd=self.build.folder, check=True).stdout)["tests"]
        command = [word.replace(str(self.build.folder), str(build)).replace(f"{ROOT}/tests", f"{tree}/tests")
                   for word in max(tests, key=lambda test: len(test["name"]))["command"]]
        if self.mutant.program == "programs":  # of all of them the one that is to notice
            command.append(f"{tree}/tests/simt/programs/{self.mutant.noticed.split(':')[0]}.cu")
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=WALL_SECONDS)
        if done.returncode in (0, SKIPPED):
            return ("SURVIVED", "") if done.returncode == 0 else ("skipped", self.mutant.noticed)
        lines = (done.stdout + done.stderr).splitlines() or ["?"]
        noticed = [line for line in lines if self.mutant.noticed == "*" or self.mutant.noticed in line]
        by = noticed[0] if self.mutant.noticed == "*" and noticed else self.mutant.noticed
        return ("caught", by) if noticed else ("MOVED", f"{lines[0]}, not by: {self.mutant.noticed}")

    def settings_of_check(self, tree, settings):
        """How ./flash check compiles and links, with the mutant's headers, objects and compiler."""
        library, objects = self.folder / CHECK_LIBRARY, []
        for i, name in enumerate(self.build.members(CHECK_LIBRARY)):
            objects.append(self.build.folder / name)
            if self.stale(name, "all"):
                objects[-1] = self.folder / f"check{i}.o"
                self.run(self.compile_command(name, objects[-1]))
        self.run(f"ar qcs {library} {' '.join(map(str, objects))}")
        text = settings.read_text()
        settings.unlink()  # a link until here
        changed = {"ROOT": tree, "LIBRARY": library, "LAUNCHES": self.compiler or self.build.folder / COMPILER}
        settings.write_text(text + "".join(f"{name}='{value}'\n" for name, value in changed.items()))

    def fails(self, test, more):
        """Does the program fail in this test? Then `by` is the first case that did."""
        names = re.sub(r"[,*?\\]", "?", test) if test != "*" and "*checked" not in test else test
        command = [str(self.folder / "test"), "--abort-after=1", f"--test-case={names}", *more]
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=self.environment,
                                  cwd=self.build.folder, timeout=WALL_SECONDS, preexec_fn=limit)
            code, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as expired:
            code, text = 1, (expired.stdout or b"").decode(errors="replace")
        self.skipped = code == SKIPPED
        if code in (0, SKIPPED):
            return False
        if NO_SUCH_TEST in text:
            self.skipped = subprocess.run(command[0], capture_output=True, cwd=self.build.folder).returncode == SKIPPED
            if not more and not self.skipped:
                raise Failed(f"there is no test '{test}'")
            return False
        # The first that failed: after an exception, unlike after a failed CHECK, doctest goes on. None: it was stopped.
        case = None
        for line in text.splitlines():
            if line.startswith("TEST CASE: "):
                case = line[len("TEST CASE: "):].strip()
            elif " ERROR: " in line:
                break
        else:
            if not case and code >= 0:
                raise Failed(f"no test case failed, and yet: {text.strip().splitlines()[-1:]}")
            # Killed at the limit of CPU time, a program leaves unsaid what it had in its buffer.
            case = f"the limit of time, after {case or 'whatever came before'}"
        finding = re.search(r"race: [a-z ]* of shared [A-Za-z0-9_:]*", text)
        self.by = case + (f": {finding[0]}" if finding else "")
        return True

    def stale(self, name, machine):
        """Must this object be compiled anew?"""
        if machine == "sim" and "_checked.dir/" in name or machine == "checked" and "_sim.dir/" in name:
            return False
        if self.compiler and COMPILER in self.build.command(name):
            return True
        if any(file.endswith(".html") and f"/{file}" in self.build.command(name) for file in self.files):
            return True  # a page that the compiler is told to include by its name
        depends = self.build.depends.get(name, ())
        return any(path.endswith(f"/{file}") for file in self.files for path in depends)

    def relink(self, program, output, machine):
        """Links a program with what the mutant changes; True if it compiled something."""
        link, fresh = self.build.link(program), False
        for name in self.build.objects(program):
            if not self.stale(name, machine):
                continue
            mine = self.folder / name.replace("/", "_")
            if not mine.exists():
                fresh = True
                self.run(self.compile_command(name, mine))
            if "_sim.dir/" in name:
                # First: what is inlined at -O2 is a function of its own at -Og, and the checked kernels have one of
                # the same name, which calls the checker.
                link = re.sub(r" (\S*\.o) ", f" {mine} \\1 ", link.replace(f" {name}", ""), count=1)
            elif f" {name} " in link:
                link = link.replace(f" {name} ", f" {mine} ")
            else:
                link = link.replace(" -o ", f" {mine} -o ", 1)  # out of an archive: ours comes first
        if machine == "sim":
            link = link.replace(" -o ", f" {self.unchecked} -o ", 1)
        self.run(link.replace(f" -o {program}", f" -o {output}"))
        return fresh

    def compile_command(self, name, output):
        # Less optimisation, and no error for what a mutant leaves unused. (Checked kernels have -Og anyway; what they
        # count depends on it.)
        kernel = "_checked.dir/" in name or "_sim.dir/" in name
        command = self.build.compiles(name, "-Wno-error -Og" if kernel else "-Wno-error -O1", output)
        command = re.sub(r' ("?-I)', f" -I{self.folder} \\1", command, count=1)
        source = re.search(r" -c \"?(\S+?)\"?$", command)
        for file in self.files:  # the mutant's copy, where the source file itself is the mutant
            if source and source[1].endswith(f"/{file}"):
                command = command[:source.start()] + f" -c {self.folder / file}"
            elif source and f'"{ROOT}/{file}"' in (text := pathlib.Path(source[1]).read_text(errors="replace")):
                wrapper = self.folder / pathlib.Path(source[1]).name  # a kernel file's, which the build writes
                wrapper.write_text(text.replace(f"{ROOT}/{file}", str(self.folder / file)))
                command = command[:source.start()] + f" -c {wrapper}"
            if file.endswith(".html"):
                command = re.sub(rf'[^\s"\\]*/{re.escape(file)}', str(self.folder / file), command)
        return command.replace(str(self.build.folder / COMPILER), str(self.compiler)) if self.compiler else command

    def run(self, command):
        done = shell(command, cwd=self.build.folder)
        if done.returncode != 0:
            errors = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line]
            raise Failed(f"does not compile: {(errors or ['?'])[0]}")


def tried(build, unchecked, deadline, mutant):
    if time.monotonic() > deadline:
        return mutant, "left", ""
    trial = None
    try:
        trial = Trial(build, mutant, unchecked)
        kind, by = trial.verdict()
    except (mutants.Wrong, Failed) as wrong:
        kind, by = "BROKEN", str(wrong)
    finally:
        if trial:
            shutil.rmtree(trial.folder, ignore_errors=True)
    print(f"{kind:9} {mutant.full}" + (f", by: {by}" if by else ""), flush=True)
    return mutant, kind, by


def take_cores(number):
    """Of this pool's thread, and of what it starts: two cores, so that programs do not run a thread for each core."""
    cores = sorted(os.sched_getaffinity(0))
    first = next(number)
    os.sched_setaffinity(0, {cores[(first + i) % len(cores)] for i in range(2)})


def hash_of_sources():
    digest = hashlib.sha256()
    for folder in ("phases", "sim", "gpu", "tests", "docs/results"):
        for path in sorted(p for p in (ROOT / folder).rglob("*") if p.is_file() and p.suffix != ".pyc"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def area_of(mutant):
    return mutants.areas()[mutant.program]


# Of each area one runs with all tests: whichever comes first by the hash of the sources and is soon compiled.
FEW_OBJECTS = 4


def chosen(build, every, words, digest):
    if len(words) > 1:
        return list({m.full: m for word in words for m in chosen(build, every, [word], digest)}.values())
    word = "".join(words)
    if word == "all":
        return every
    if word:
        wanted = [m for m in every if word in (m.full, m.program, area_of(m))]
        if not wanted:
            areas = ", ".join(sorted(set(mutants.areas().values())))
            sys.exit(f"flash: mutant '{word}' is none of tests/mutants; name an area ({areas}), a list, or LIST/NAME "
                     "as in SURVIVED lines")
        return wanted
    one = {}
    for m in sorted(every, key=lambda m: hashlib.sha256((digest + m.full).encode()).digest()):
        # On a computer without a GPU it would be skipped.
        if area_of(m) not in one and not m.program.endswith("_gpu") and build.reach(m) <= FEW_OBJECTS:
            one[area_of(m)] = m
    return list(one.values())


def key_of(mutant):
    """Its kind and name in a results file; each kind gets a table of its own."""
    if not mutant.name.startswith("barrier@"):
        return mutant.program, mutant.name
    return "deleted barriers", mutant.name.removeprefix("barrier@phases/").replace("@", ":")


def verdicts_of(files):
    """The verdicts of results files, key -> row; of two of a mutant the later one. And the files' commits."""
    rows, commits = {}, {}
    for file in files:
        kept = json.loads(pathlib.Path(file).read_text())
        rows.update({(row["kind"], row["mutant"]): row for row in kept["rows"]})
        commits[kept["environment"]["commit"]] = None
    return rows, ", ".join(commits)


def write_json(path, rows, commit):
    """A results file, in the order of the names."""
    lines = ",\n".join("    " + json.dumps(rows[key], ensure_ascii=False) for key in sorted(rows))
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    head = json.dumps({"commit": commit, "date": date}, indent=4).replace("\n}", "\n  }")
    pathlib.Path(path).write_text(f'{{\n  "environment": {head},\n  "rows": [\n{lines}\n  ]\n}}\n')


def merge(files, path, every):
    """Joins results files, without what is no mutant any more."""
    rows, commits = verdicts_of(files)
    rows = {key: rows[key] for key in map(key_of, every) if key in rows}
    write_json(path, rows, commits)
    caught = sum(row["verdict"] == "caught" for row in rows.values())
    print(f"mutants: {caught} of {len(rows)} caught, {len(every) - len(rows)} of {len(every)} without a verdict")


def run_all(build, wanted, given):
    """(mutant, verdict, by whom) of each; the results file has those that are there, even if it is stopped."""
    results, rows = {}, {}
    commit = os.environ.get("FLASH_COMMIT") or shell("git rev-parse --short HEAD", cwd=ROOT).stdout.strip() or "unknown"
    with tempfile.TemporaryDirectory() as work:
        unchecked = pathlib.Path(work) / "where.o"
        shell(build.compiles(NO_CHECKED, "-DFLASH_NO_CHECKED_KERNELS", unchecked), cwd=build.folder, check=True)
        begin = functools.partial(tried, build, unchecked, time.monotonic() + given.seconds)
        with concurrent.futures.ThreadPoolExecutor(given.jobs, "", take_cores, (itertools.count(),)) as pool:
            for done in concurrent.futures.as_completed([pool.submit(begin, mutant) for mutant in wanted]):
                mutant, kind, by = results[done.result()[0].full] = done.result()
                if given.json and kind not in UNJUDGED:
                    key = key_of(mutant)
                    rows[key] = {"kind": key[0], "mutant": key[1], "verdict": kind, "by": by}
                    write_json(given.json, rows, commit)
    return [results[mutant.full] for mutant in wanted]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("build", nargs="?")
    options.add_argument("which", nargs="*")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--json")
    options.add_argument("--seconds", type=float, default=math.inf)
    options.add_argument("--but", nargs="+", default=[], metavar="FILE")
    options.add_argument("--merge", nargs="+", metavar="FILE")
    given = options.parse_args()
    if (given.merge is None) == (given.build is None) or (given.merge and not given.json):
        options.error("give a build folder, or --merge FILE … --json FILE")
    try:
        listed = mutants.all_mutants()
        wrong = mutants.problems(listed)  # what the sources have left behind is noticed whichever ones are run
    except mutants.Wrong as error:
        wrong = [str(error)]
    if wrong:
        sys.exit("\n".join(wrong))
    every = [*listed, *barriers()]
    if given.merge:
        return merge(given.merge, given.json, every)
    digest = hash_of_sources()
    build = Build(pathlib.Path(given.build).resolve())
    kept = build.folder / f"mutants-{digest}.txt"
    if not given.which and kept.exists():
        print(kept.read_text(), end="")
        return
    before, _ = verdicts_of(given.but)
    results = run_all(build, [m for m in chosen(build, every, given.which, digest) if key_of(m) not in before], given)
    kinds = collections.Counter(kind for _, kind, _ in results)
    judged = len(results) - sum(kinds[kind] for kind in UNJUDGED)
    score = f"mutants: {kinds['caught']} of {judged} caught (hash of the sources {digest})" + "".join(
        f", {kinds[kind]} {kind}" for kind in UNJUDGED if kinds[kind])
    print(score)
    if kinds["caught"] != judged:
        sys.exit(1)
    if not given.which and judged == len(results):
        kept.write_text("".join(f"{kind:9} {m.full}, by: {by}\n" for m, kind, by in results) + score + "\n")


if __name__ == "__main__":
    main()
