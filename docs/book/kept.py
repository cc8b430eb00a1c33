# kept.py: what the pages print, claim and draw, as it was when somebody last looked at it. The book is laid out from
# it, and nothing need be compiled: docs/book/golden has PAGE.txt, pictures/NAME.svg, and the player's runs (gzip, since
# they are numbers that nobody reads). ./flash book --run runs the cells again, --golden keeps what they print, --check
# compares. build.py imports it.
import gzip
import json
import pathlib
import re
import subprocess

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
LIMIT = 3_000_000  # bytes, all of it
RUNS_STEP = 1e-3  # by how much a value in the player's runs may differ


class Wrong(Exception):
    """What the reader of the terminal should know."""


class Outputs:
    """What each page's cells gave: as it is kept, or, of the pages that were run now, as it came."""

    def __init__(self, fresh):
        self.fresh = fresh  # the folder for what comes
        self.ran = set()

    def folder(self, page):
        return self.fresh if page in self.ran else GOLDEN

    def run(self, page, program):
        """Runs a page's cells. A cell that fails or a claim that is false is an error, and nothing is kept of it."""
        (self.fresh / "pictures").mkdir(parents=True, exist_ok=True)
        done = subprocess.run([program, "--jsonl", "--svg", self.fresh / "pictures"], capture_output=True, text=True)
        outputs = [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode != 0:
            false = [c["claim"] for o in outputs for c in o["claims"] if not c["holds"]]
            raise Wrong(f"{page}: {done.stderr.strip() or 'no longer true: ' + '; '.join(false)}")
        (self.fresh / f"{page}.txt").write_text(as_text(outputs))
        self.ran.add(page)

    def run_player(self, program):
        self.fresh.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([program, "--json", self.fresh / "player.json"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Wrong(done.stderr.strip())
        self.ran.add("player")

    def of(self, page):
        """A page's outputs: of each cell its number, title, text, claims and pictures."""
        path = self.folder(page) / f"{page}.txt"
        if not path.exists():
            raise Wrong(f"nothing is kept of page {page}; run ./flash book --golden, and look at what it prints")
        return from_text(path.read_text())

    def picture(self, page, name):
        return (self.folder(page) / "pictures" / name).read_text()

    def player(self):
        if "player" in self.ran:
            return (self.fresh / "player.json").read_text()
        return gzip.decompress((GOLDEN / "player.json.gz").read_bytes()).decode()

    # ---------------------------------------------------------------- keeping and comparing

    def keep(self):
        """What came now is kept where it is not the same, and what no page draws any more is deleted."""
        (GOLDEN / "pictures").mkdir(parents=True, exist_ok=True)

        def renew(path, now, same):
            if not path.exists() or not same(path.read_text(), now):
                path.write_text(now)
        for page in self.ran - {"player"}:
            renew(GOLDEN / f"{page}.txt", (self.fresh / f"{page}.txt").read_text(), lambda a, b: not list(unlike(a, b)))
            for name in pictures_of(self.of(page)):
                renew(GOLDEN / "pictures" / name, self.picture(page, name), alike)
        if "player" in self.ran:
            now, path = self.player(), GOLDEN / "player.json.gz"
            if not path.exists() or not alike(gzip.decompress(path.read_bytes()).decode(), now, RUNS_STEP):
                path.write_bytes(gzip.compress(now.encode(), 9, mtime=0))
        drawn = {name for path in GOLDEN.glob("*.txt") for name in pictures_of(from_text(path.read_text()))}
        for path in (GOLDEN / "pictures").glob("*.svg"):
            if path.name not in drawn:
                path.unlink()

    def compare(self, pages):
        """Every page, when all have been run: is what came what is kept? Returns complaints, a line each."""
        stale = []
        for page in pages:
            path = GOLDEN / f"{page}.txt"
            if not path.exists():
                stale.append(f"docs/book/golden/{page}.txt is missing")
                continue
            now = (self.fresh / f"{page}.txt").read_text()
            stale += [f"docs/book/golden/{page}.txt:{at}: {what}" for at, what in unlike(path.read_text(), now)]
            for name in pictures_of(from_text(now)):
                drawn = GOLDEN / "pictures" / name
                if not drawn.exists():
                    stale.append(f"docs/book/golden/pictures/{name} is missing")
                elif not alike(drawn.read_text(), self.picture(page, name)):
                    stale.append(f"docs/book/golden/pictures/{name}: now it is another; {self.fresh}/pictures has it")
        kept = {p.name for p in GOLDEN.rglob("*") if p.is_file()}
        known = {f"{page}.txt" for page in pages} | {"player.json.gz"}
        known |= {name for page in pages if (GOLDEN / f"{page}.txt").exists() for name in pictures_of(self.of(page))}
        stale += [f"docs/book/golden: {name} belongs to no page" for name in sorted(kept - known)]
        if not alike(gzip.decompress((GOLDEN / "player.json.gz").read_bytes()).decode(), self.player(), RUNS_STEP):
            stale.append("docs/book/golden/player.json.gz: the phases' runs are recorded otherwise")
        size = sum(p.stat().st_size for p in GOLDEN.rglob("*") if p.is_file())
        if size > LIMIT:
            stale.append(f"docs/book/golden has {size:,} bytes; {LIMIT:,} is what it may have")
        return stale


# -------------------------------------------------------------------- the format of PAGE.txt

HEAD = re.compile(r"── (\d+)\. (.*) ──")


def as_text(outputs):
    """What a reader of the file sees: of each cell a title, what it printed, its claims, its pictures."""
    return "".join(f'── {o["number"]}. {o["title"]} ──\n{o["text"]}' +
                   "".join(f'✓ {c["claim"]}\n' for c in o["claims"]) +
                   "".join(f"picture: {name}\n" for name in o["pictures"]) for o in outputs)


def from_text(text):
    outputs = []
    for line in text.splitlines(keepends=True):
        head = HEAD.fullmatch(line.rstrip("\n"))
        if head and int(head[1]) == len(outputs) + 1:
            outputs.append({"kind": "output", "number": int(head[1]), "title": head[2], "text": "", "claims": [],
                            "pictures": []})
        elif line.startswith("✓ "):
            outputs[-1]["claims"].append(line[2:].rstrip("\n"))
        elif line.startswith("picture: "):
            outputs[-1]["pictures"].append(line[len("picture: "):].rstrip("\n"))
        else:
            outputs[-1]["text"] += line
    return outputs


def pictures_of(outputs):
    return [name for o in outputs for name in o["pictures"]]


# -------------------------------------------------------------------- what counts as the same

SCIENTIFIC = re.compile(r"[-+]?\d+(?:\.\d+)?e[-+]\d+")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?")
COLOUR = re.compile(r"#[0-9a-f]{6}\b")


def unlike(old, new):
    """The lines that differ. Numbers in scientific notation are rounding errors: a factor of 4 between compilers."""
    old, new = old.splitlines(), new.splitlines()
    for at, (a, b) in enumerate(zip(old, new), 1):
        x, y = [float(n) for n in SCIENTIFIC.findall(a)], [float(n) for n in SCIENTIFIC.findall(b)]
        close = len(x) == len(y) and all(p == q or (p * q > 0 and 0.25 <= p / q <= 4) for p, q in zip(x, y))
        if not close or re.split(r"\s+", SCIENTIFIC.sub("~", a)) != re.split(r"\s+", SCIENTIFIC.sub("~", b)):
            yield at, f"was '{a}', is '{b}'"
    if len(old) != len(new):
        yield min(len(old), len(new)) + 1, f"{len(old)} lines were kept, {len(new)} came"


def alike(old, new, step=0.11):
    """Pictures, or runs: the same but for the last digit of a number, which rounding decides, and of a colour."""
    def numbers(text):
        text = COLOUR.sub(lambda m: " ".join(str(int(m[0][i:i + 2], 16) / 16) for i in (1, 3, 5)), text)
        return NUMBER.split(text), [float(n) for n in NUMBER.findall(text)]
    if old == new:
        return True
    (texts, x), (others, y) = numbers(old), numbers(new)
    return texts == others and all(abs(a - b) <= step * max(1, abs(a) / 1000) for a, b in zip(x, y))


def try_myself():
    """What no page would notice."""
    assert not list(unlike("error 2.0e-07, N = 5", "error  7.9e-07, N = 5")) and not list(unlike("0e+00 x", "0e+00 x"))
    for old, new in [("N = 5", "N = 6"), ("2.0e-07", "8.1e-07"), ("1e-07", "-1e-07"), ("1e-07", "0e+00"),
                     ("a\nb", "a"), ("1e-07 2e-07", "1e-07"), ("a", "a\nb")]:
        assert list(unlike(old, new)), (old, new)
    same = [{"kind": "output", "number": 1, "title": "a", "text": "x\n", "claims": [{"claim": "b"}],
             "pictures": ["c.svg"]}]
    assert from_text(as_text(same)) == [{**same[0], "claims": ["b"]}]
    assert alike('x="10.1" fill="#0a0b0c"', 'x="10.2" fill="#0b0b0c"')
    for other in ('x="10.4" fill="#0a0b0c"', 'y="10.1" fill="#0a0b0c"', 'x="10.1" fill="#2a0b0c"', 'x="10.1"'):
        assert not alike('x="10.1" fill="#0a0b0c"', other), other
