# mutants.py: the lists of mutants (tests/mutants/*.txt), read and applied. A mutant is a source made wrong in one named
# way, which one named test must notice. A list is named after the test program and looks like this:
#
#   l-not-rescaled: l keeps its weight when the maximum grows.
#     in phases/05-first-kernel/attention.cuh
#       - l = fmaf(l, alpha, sum);
#       + l = fmaf(l, 1.0f, sum);
#     noticed by O and LSE on every shape<float>
#
# Lines with - stand in the file, one after the other, those with + take their place; lines with = stand there and stay.
# Line numbers and indentation do not count, so a mutant follows its text; the text must stand there exactly once.
# "noticed by *": some test of the program. A list that is named after a script (check: tests/check_test.sh, tables:
# tests/bench/tables_test.py) gives words of what the script prints instead.
# A list begins with "# area: NAME"; ./flash test tries one mutant of each area.
# Use: run.py runs them; python3 tests/mutants/mutants.py says which do not apply (CTest: mutants_apply); with
# --name FILE, a results file of run.py, it writes the test that noticed in place of each "*".
import dataclasses
import functools
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


@dataclasses.dataclass
class Mutant:
    program: str  # the list's name: bin/PROGRAM_test must notice, or a script of this name
    name: str
    says: str
    edits: list = dataclasses.field(default_factory=list)  # of (file, [(mark, text)])
    noticed: str = ""

    @property
    def full(self):
        return f"{self.program}/{self.name}"


class Wrong(Exception):
    """A mutant that cannot be read or does not apply."""


def read(path):
    """The mutants of one list, in its order."""
    mutants = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        if not text or line.startswith("#"):
            continue
        if not line.startswith(" "):
            name, colon, says = line.partition(": ")
            if not colon:
                raise Wrong(f"{path.name}:{number}: expected NAME: what is wrong")
            mutants.append(Mutant(path.stem, name, says))
        elif text.startswith("in "):
            mutants[-1].edits.append((text[3:], []))
        elif text.startswith("noticed by "):
            mutants[-1].noticed = text[len("noticed by "):]
        elif text[0] in "-+=" and mutants and mutants[-1].edits:
            mutants[-1].edits[-1][1].append((text[0], text[1:].strip()))
        else:
            raise Wrong(f"{path.name}:{number}: expected 'in FILE', a line with - + or =, or 'noticed by TEST'")
    return mutants


def all_mutants():
    return [mutant for path in sorted(HERE.glob("*.txt")) for mutant in read(path)]


@functools.lru_cache(maxsize=None)
def areas():
    """List -> area."""
    return {path.stem: path.read_text().split("\n", 1)[0].removeprefix("# area: ") for path in HERE.glob("*.txt")}


def place_of(edit, lines, where):
    """Where the text that an edit replaces begins: the number of its first line."""
    stands = [text for mark, text in edit if mark != "+"]
    bare = [line.strip() for line in lines]
    places = [i for i in range(len(lines) - len(stands) + 1) if bare[i:i + len(stands)] == stands]
    if len(places) != 1 or not stands:
        raise Wrong(f"{where}: this stands there {len(places)} times, expected once: {' / '.join(stands)}")
    return places[0]


def replaced(lines, edits, where):
    """The lines of a file after its edits, each of which names what stands in the file as it is."""
    lines = list(lines)
    for at, edit in sorted(((place_of(edit, lines, where), edit) for edit in edits), reverse=True):
        indentation = lines[at][:len(lines[at]) - len(lines[at].lstrip())]
        result, old = [], iter(lines[at:])
        for mark, text in edit:
            if mark == "+":
                result.append(indentation + text + "\n" if text else "\n")
            elif mark == "=":
                result.append(next(old))
            else:
                next(old)
        lines[at:] = result + list(old)
    return lines


def applied(mutant, root=ROOT):
    """The mutant's files: path in the tree -> text."""
    files = {}
    for file in dict.fromkeys(file for file, _ in mutant.edits):
        if not (root / file).is_file():
            raise Wrong(f"{mutant.full}: there is no file {file}")
        lines = (root / file).read_text().splitlines(keepends=True)
        edits = [edit for of, edit in mutant.edits if of == file]
        files[file] = "".join(replaced(lines, edits, f"{mutant.full}: {file}"))
    return files


def is_script(program):
    """Whether the test of a list is a script: what it prints is no test case's title."""
    return any((ROOT / file).is_file() for file in (f"tests/{program}_test.sh", f"tests/bench/{program}_test.py"))


@functools.lru_cache(maxsize=None)
def titles():
    """The text of all test cases, literals that follow one another joined."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("*.[ch]pp")))
    return re.sub(r'"\s*\n\s*"', "", text)


def problems(mutants):
    """A line for each mutant that does not apply, changes nothing, or does not say which test must notice it."""
    lines, names, tests = [], set(), titles()
    for mutant in mutants:
        try:
            if not any((ROOT / file).read_text() != text for file, text in applied(mutant).items()):
                lines.append(f"{mutant.full}: changes nothing")
        except Wrong as wrong:
            lines.append(str(wrong))
        if not mutant.noticed:
            lines.append(f"{mutant.full}: says nothing of who must notice it")
        elif not is_script(mutant.program) and "*" not in mutant.noticed and (
                '"' + re.sub("<[^<>]*>$", "", mutant.noticed) + '"' not in tests):
            lines.append(f"{mutant.full}: there is no test '{mutant.noticed}'")
        if mutant.full in names:
            lines.append(f"{mutant.full}: two mutants of one name")
        names.add(mutant.full)
    return lines


def name_tests(results):
    """In the lists: for "noticed by *" the test that noticed it in this results file."""
    by = {(row["kind"], row["mutant"]): row["by"] for row in json.loads(results.read_text())["rows"]}
    for path in HERE.glob("*.txt"):
        lines, name = path.read_text().splitlines(keepends=True), ""
        for i, line in enumerate(lines):
            if line[0] not in " #\n":
                name = line.partition(":")[0]
            test = re.sub(": race: .*", "", by.get((path.stem, name), ""))
            if test and line.strip() == "noticed by *" and '"' + re.sub("<[^<>]*>$", "", test) + '"' in titles():
                lines[i] = f"  noticed by {test}\n"
        path.write_text("".join(lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--name"]:
        name_tests(pathlib.Path(sys.argv[2]))
    try:
        found = problems(all_mutants())
    except Wrong as wrong:
        found = [str(wrong)]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
