# rows.py: the JSON files beside this one, read strictly, and numbers as tables and pictures show them. A field that is
# missing, twice the same name, NaN, text in place of a number, two measurements of one setting: each is an error.
# for row in rows.read(path)["rows"]: print(rows.short(row["tflops"]))
import collections
import json
import math

# What tells measurements of one file apart; the other fields are what was measured.
SETTING = ("sweep", "kernel", "B", "H", "N", "D", "causal", "type")


class Wrong(Exception):
    """What is wrong with a file or a marker, on one line."""


class Row(dict):
    """A JSON object of a file."""
    file = ""

    def __missing__(self, name):
        raise Wrong(f"{self.file}: a row without '{name}'")

    def same(self, other, but=()):
        """Is it of the same setting, in the same file, what `but` names aside?"""
        return self.file == other.file and all(
            self.get(name) == other.get(name) for name in SETTING if name not in but)


def read(path):
    """A file: its environment and its rows, which know their file and say `mask`: causal or no mask."""
    def once(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError(f"twice the same name among {', '.join(name for name, _ in pairs)}")
        return Row(pairs)

    def no_number(text):
        raise ValueError(f"{text} is no number")

    try:
        file = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once, parse_constant=no_number)
    except (OSError, ValueError) as error:
        raise Wrong(f"{path.name}: {error}") from None
    rows = file.get("rows") if isinstance(file, Row) else None
    if not isinstance(rows, list) or not all(isinstance(row, Row) for row in [*rows, file.get("environment")]):
        raise Wrong(f"{path.name}: expected an object of 'environment' and 'rows'")
    timed = collections.Counter(
        tuple(row.get(name) for name in SETTING) for row in rows if "kernel" in row and "tflops" in row)
    for setting, times in timed.items():
        if times > 1:
            raise Wrong(f"{path.name}: measured twice: {', '.join(map(str, setting))}")
    for row in rows:
        row.file = path.name
        if "causal" in row:
            row["mask"] = "causal" if row["causal"] else "no mask"
    return file


def number(x):
    if type(x) not in (int, float) or not math.isfinite(x):
        raise Wrong(f"{json.dumps(x)} stands where a number should")
    return x


def share(a, b):
    """a / b, both numbers."""
    if number(b) == 0:
        raise Wrong(f"{a} is to be shown as a part of 0")
    return number(a) / b


def short(x):
    """Three significant figures: 0.0321, 4.56, 78.9, 1234."""
    return f"{number(x):.{4 if x < 0.1 else 3 if x < 1 else 2 if x < 10 else 1 if x < 100 else 0}f}"


def is_ours(kernel):
    """Phases begin with their number, libraries do not."""
    return kernel[0].isdigit()
