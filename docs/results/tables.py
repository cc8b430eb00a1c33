#!/usr/bin/env python3
# tables.py: keeps what follows from the JSON files beside it equal to them: tables and figures between markers in
# README.md and docs, and the pictures of phases. --check (a test) names what is stale and exits with 1; --write renews.
#   <!-- results KIND WORDS FILES -->  …  <!-- end of results -->     a table: one of KINDS below, or of a sweep
#   <!-- range kernel=A over=B FILES -->1.10 to 1.33<!-- end -->      within a sentence: see figure_text
#   <!-- phases -->  …  <!-- end of phases -->                        the phases, as flash-phases names them
# A word FIELD=VALUE,VALUE chooses rows, _ stands for a space; files behind `else` serve while one before is missing.
# python3 docs/results/tables.py --check|--write
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import textwrap

sys.dont_write_bytecode = True  # the book lists this folder
import pictures  # noqa: E402
from rows import Row, Wrong, is_ours, number, read, share, short  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = ("torch flash", "torch cudnn")
GRADIENTS = ("dQ", "dK", "dV")
SHAPE = "D {D}, {mask}, {type}"


# ---- What tables are made of -----------------------------------------------------------------------------------------

def line(cells):
    return "| " + " | ".join(cells) + " |\n"


def head(titles, words=1):
    """The first two lines of a table: `words` columns of text, the others of numbers."""
    first = line(titles)
    return first + "|" + "---|" * words + "---:|" * (first.count("|") - 1 - words) + "\n"


def filled(pattern, row):
    """A text with {field}s, or a function of the row."""
    try:
        return pattern(row) if callable(pattern) else pattern.format_map(row)
    except (TypeError, ValueError, IndexError) as error:
        raise Wrong(f"{row.file}: {'' if callable(pattern) else pattern + ': '}{error}") from None


def table(rows, columns, words=1):
    """A line per row; columns: title -> what stands there."""
    return head(columns, words) + "".join(line(filled(cell, row) for cell in columns.values()) for row in rows) + "\n"


def grid(rows, title, line_of, column_of, cell_of, missing="", heading="{}"):
    """A line for each value of line_of, a column for each of column_of; `title` stands above the lines' names."""
    cells = {}
    for row in rows:
        place = filled(line_of, row), filled(column_of, row)
        if place in cells:
            raise Wrong(f"{row.file}: two rows for one cell: {', '.join(place)}")
        cells[place] = filled(cell_of, row)
    names, columns = (list(dict.fromkeys(values)) for values in zip(*cells))
    return head([title, *map(heading.format, columns)]) + "".join(
        line([name, *(cells.get((name, column), missing) for column in columns)]) for name in names) + "\n"


def groups(rows, pattern):
    """The rows by what a pattern makes of them, in their order."""
    found = {}
    for row in rows:
        found.setdefault(filled(pattern, row), []).append(row)
    return found


def one_of(words, name):
    if len(words.get(name, ())) != 1:
        raise Wrong(f"expected {name}=VALUE in the marker")
    return words[name][0]


# ---- Of two kernels, and of predictions ------------------------------------------------------------------------------

def other(row, rows, field, name, value):
    """How many times a field of the row is that of the row that differs in `name` alone, which is `value` there. None
    where one of both was not measured. Rows of two files are not compared: they were not timed together."""
    same = [each for each in rows if each.get(name) == value and field in each and row.same(each, but=(name,))]
    return share(row[field], same[0][field]) if same and field in row else None


def times_as_fast(row, rows, over):
    return other(row, rows, "tflops", "kernel", over)


def floors_of(row, tensor):
    """The error of a gradient in rounding floors: errors of the exact one, rounded to its type."""
    return share(row["error"][tensor], row["floor"][tensor])


def quantity(of, row, rows):
    """What a prediction or a sentence takes from a row; None where the row has it not."""
    fields = {"TFLOP/s": "tflops", "FLOP/clk/SM of mma": "mma_flop_per_clk", "ex2/clk/SM": "ex2_per_clk",
              "B/clk/SM of ldmatrix": "ldmatrix_bytes_per_clk", "ms of a step": "step_ms", "us of the host": "host_us"}
    if of in fields:
        return number(row[fields[of]]) if fields[of] in row else None
    if of == "GB wanted":
        return number(row["out_of_memory_bytes"]) * 1e-9 if "out_of_memory_bytes" in row else None
    if of == "times the TFLOP/s at N/2":
        return other(row, rows, "tflops", "N", row["N"] / 2)
    if match := re.fullmatch(r"times (.+)'s (TFLOP/s|time)", of):
        return other(row, rows, {"TFLOP/s": "tflops", "time": "median_ms"}[match[2]], "kernel", match[1])
    if match := re.fullmatch(r"floors of (dQ|dK|dV)", of):
        return floors_of(row, GRADIENTS.index(match[1]))
    raise Wrong(f"nobody knows how to take '{of}' from a row")


def taken(name, values):
    """Of some values: range, least, most, or mean, the geometric one."""
    ways = {"range": (min, max), "least": (min,), "most": (max,), "mean": (statistics.geometric_mean,)}
    if name not in ways:
        raise Wrong(f"'{name}' is unknown; expected one of {' '.join(ways)}")
    return [way(values) for way in ways[name]]


def figure_text(rows, words):
    """For a sentence. kernel=A over=B: how many times as fast A is as B; of=…: another quantity, kernel=A: of that one.
    show=…: what of the values, their range where nothing is said."""
    if "of" in words:
        of = one_of(words, "of")
        shown = [row for row in rows if "kernel" not in words or row["kernel"] in words["kernel"]]
    else:
        kernel, of = one_of(words, "kernel"), f"times {one_of(words, 'over')}'s TFLOP/s"
        shown = [row for row in rows if row["kernel"] == kernel]
    values = [value for row in shown if (value := quantity(of, row, rows)) is not None]
    if not values:
        raise Wrong(f"no row has {of}")
    text = "{:.2f}".format if of.startswith("times ") else short
    return " to ".join(map(text, taken(one_of(words, "show") if "show" in words else "range", values)))


def said(value):
    """As a marker says it: 64, true, null, torch cudnn."""
    return value if isinstance(value, str) else f"{value:g}" if type(value) in (int, float) else json.dumps(value)


def matches(row, wanted):
    """Has it these fields? A list: any of these values."""
    return all(name in row and said(row[name]) in map(said, value if isinstance(value, list) else [value])
               for name, value in wanted.items())


def verdict_on(claim, measured):
    """What was expected, what was measured, and the verdict. Not measured yet is what no row of its sweep is there for,
    and how fast a kernel is beside another one that was timed only apart from it."""
    of, wanted, low, high = claim["of"], claim["rows"], claim.get("low"), claim.get("high")
    expected = f"at most {number(high):g}" if low is None else f"at least {number(low):g}" if high is None else \
        f"{number(low):g} to {number(high):g}"
    claimed = f"{claim['claim']}: {expected} {of}"
    rows = [row for row in measured if matches(row, wanted)]
    over = re.fullmatch(r"times (.+)'s TFLOP/s", of)
    beside = {row.file for row in measured if over and row.get("kernel") == over[1]}
    together = [row for row in rows if row.file in beside] if beside else rows
    if rows and not together or "sweep" in wanted and not any(row.get("sweep") == wanted["sweep"] for row in measured):
        return claimed, "not yet", ""
    values = [quantity(of, row, measured) for row in together]
    if not values or None in values:
        raise Wrong(f"'{claim['claim']}': " + (f"a row without {of}" if values else "no such row"))
    if "take" in claim:
        values = taken(claim["take"], values)
    below = sum(low is not None and not x >= low for x in values)
    above = sum(high is not None and not x <= high for x in values)
    found = " to ".join(map(short, taken("range", values) if len(values) > 1 else values))
    side = "below" if above == 0 else "above" if below == 0 else "outside"
    return claimed, found, f"**wrong**: {below + above} of {len(values)} {side}" if below + above else "as predicted"


def predictions_table(rows, words):
    """Beside the measurements that they speak of. A row with a claim says what it takes (`of`) from which `rows`, and
    expects that between `low` and `high`. about=KERNEL: those about this one alone."""
    claims, measured = [row for row in rows if "claim" in row], [row for row in rows if "claim" not in row]
    if "about" in words:
        about = {"kernel": one_of(words, "about")}
        claims = [claim for claim in claims
                  if "kernel" in claim["rows"] and matches(about, {"kernel": claim["rows"]["kernel"]})]
    return head(["predicted", "measured", "verdict"], 3) + "".join(
        line(verdict_on(claim, measured)) for claim in claims) + "\n"


def ratios_table(rows, words):
    """kernel=A over=B: a line per D, mask and type, a column per N: how many times as fast A is as B."""
    kernel, over = one_of(words, "kernel"), one_of(words, "over")
    known = [row for row in rows if row["kernel"] == kernel and times_as_fast(row, rows, over) is not None]
    if not known:
        raise Wrong(f"no row of {kernel} beside {over}")
    return grid(known, f"{kernel} / {over}", SHAPE, "{N}",
                lambda row: f"{times_as_fast(row, rows, over):.2f}", heading="N = {}")


def beside_tables(rows, words):
    """A table per D, mask and type: a line per N, a column per kernel (kernel=A,B: these), TFLOP/s. Of our phases also
    how many times that is each library's speed; of all, the matrix product that was timed in the same rounds."""
    def cell(row):
        over = [times_as_fast(row, rows, library) for library in LIBRARIES if is_ours(row["kernel"])]
        return short(row["tflops"]) + (f" ({over[0]:.2f}, {over[1]:.2f})" if over and None not in over else "")
    shown = [row for row in rows if "tflops" in row and row["kernel"] in words.get("kernel", [row["kernel"]])]
    if not shown:
        raise Wrong("no row is left to show")
    text = ""
    for shape, here in groups(shown, SHAPE).items():
        tokens = {number(row["B"]) * number(row["N"]) for row in here}
        batch = f"B·N = {tokens.pop()}" if len(tokens) == 1 else f"B = {here[0]['B']}"
        products = {row["N"]: Row(row, kernel="cuBLAS", tflops=row["cublas_tflops"])
                    for row in here if "cublas_tflops" in row}
        text += f"{shape}; {batch}, H = {here[0]['H']}\n\n" + \
            grid([*here, *products.values()], "N", "{N}", "{kernel}", cell)
    return text


def fastest_table(rows, words):
    """The fastest of our phases: a line per D, mask, type and H, a column per N: its name, microseconds, and in
    brackets how many times that is torch cudnn's speed."""
    def cell(row):
        times = times_as_fast(row, rows, "torch cudnn")
        return f"{row['kernel']} {short(row['median_ms'] * 1e3)}" + ("" if times is None else f" ({times:.2f})")
    ours = [row for row in rows if "tflops" in row and is_ours(row["kernel"])]
    if not ours:
        raise Wrong("no row of a phase")
    fastest = [max(here, key=lambda row: number(row["tflops"])) for here in groups(ours, SHAPE + " {H} {N}").values()]
    return grid(fastest, "the fastest phase", SHAPE + ", H {H}", "{N}", cell, heading="N = {}: µs")


# ---- The other tables ------------------------------------------------------------------------------------------------

def sweep_tables(rows, sweep):
    """One table per series: a line per N, a column per kernel."""
    def cell(row):
        if "out_of_memory_bytes" in row:
            return f"out of memory (wants {row['out_of_memory_bytes'] * 1e-9:.0f} GB)"
        return f"{short(row['tflops'])} ({short(row['median_ms'])} ms)"
    rows = [row for row in rows if row.get("sweep") == sweep]
    if not rows:
        raise Wrong(f"no table and no sweep is called {sweep}")
    return "".join(f"{series.replace('no mask', 'full')}, {here[0]['type']}: TFLOP/s (median time)\n\n" +
                   grid(here, "N", "{N}", "{kernel}", cell)
                   for series, here in groups(rows, "B{B} H{H} D{D} {mask}").items())


def summary_table(rows, words):
    """Every kernel at one shape, the largest of the kernels' sweep: TFLOP/s of its forward and backward pass, and how
    much that is of FlashAttention-2's and of cuDNN's. Of a phase's backward passes ("09 atomic 64x32") the fastest
    counts, of two measurements of one kernel the later."""
    speeds, shown = {}, []
    for row in rows:
        kernel, swept = row["kernel"], row["sweep"].startswith(("kernels", "summary"))
        if not swept or "tflops" not in row or (row["N"], row["D"], row["H"]) != (8192, 64, 48) or \
                kernel in ("torch efficient", "torch math", "naive"):
            continue
        of_blocks = kernel[2] == " "
        if of_blocks:
            kernel = next((path.name for path in ROOT.glob(f"phases/{kernel[:2]}-*")), kernel)
        own, column = speeds.setdefault(kernel, [0] * 4), row["causal"]
        column += 2 * (of_blocks or row["sweep"] == "summary-backward")
        own[column] = max(own[column] if of_blocks else 0, number(row["tflops"]))
        shown.append(row)
    if not shown:
        raise Wrong("no row of the summary's shape")

    def cell(own, column):
        shares = [100 * share(own, speeds.get(library, [0] * 4)[column]) for library in LIBRARIES]
        return short(own) + " ({}, {})".format(*(f"{x:.{1 if x < 10 else 0}f}" for x in shares))
    return filled("B{B} H{H} D{D}, N = 8192, {type}: ", shown[0]) + \
        "TFLOP/s (% of FlashAttention-2, % of cuDNN)\n\n" + \
        head(["kernel", "forward", "forward, causal", "backward", "backward, causal"]) + "".join(
            line([kernel, *(cell(x, i) if x else "" for i, x in enumerate(speeds[kernel]))])
            for kernel in sorted(speeds)) + "\n"


def counted(row):
    """The simulator's counter beside the hardware's: one number where they agree, both, in bold, where not."""
    both = dict.fromkeys(f"{row[who]:,}" for who in ("simulator", "gpu") if row[who] is not None)
    return "**" + " / ".join(both) + "**" if len(both) > 1 else "".join(both)


def gradients_table(rows, words):
    """Errors, in floors too, and whether the bar of the contract holds for all three."""
    def within(row):
        return "yes" if all(floors_of(row, i) <= number(row["bar"]) for i in range(3)) else "no"
    errors = {name: lambda row, i=i: f"{row['error'][i]:.2e} ({floors_of(row, i):.2f} ×)"
              for i, name in enumerate(GRADIENTS)}
    return table(rows, {"inputs": "{input}", "type": "{type}", "gradients of": "{who}", **errors,
                        "within the bar": within})


def mutants_table(rows, words):
    """Wrong versions, and the test that noticed each."""
    def noticed(row):
        return f"`{row['by']}`" if row["verdict"] == "caught" else f"**{row['verdict']}**"
    return "".join(
        f"{kind}: {sum(row['verdict'] == 'caught' for row in here)} of {len(here)} caught\n\n" +
        table(here, {"wrong version": "{mutant}", "noticed by": noticed}, words=2)
        for kind, here in groups(rows, "{kind}").items())


def simulators_table(rows, words):
    """GPU simulators on one core; the others are compared with each of ours."""
    return table(rows, {
        "simulator": "{simulator}", "checks that are on": "{checks}", "GFLOP/s": "{gflops:.2g}",
        "rounds": "{slowest:.2g} to {fastest:.2g}", **{
            f"{mine['simulator']} is faster by": lambda row, mine=mine:
            "" if row["ours"] else f"× {share(mine['gflops'], row['gflops']):.0f}" for mine in rows if mine["ours"]}},
        words=2)


def public_table(rows, words):
    """Public programs under ./flash check: what became of them, for each repository; then each with its cause."""
    def counted_by(kind):
        return lambda row: f"{row[kind]}" if row[kind] else ""
    def sums(here):
        of = {kind: sum(row["programs"] for row in here if row["right"] and row["verdict"] == kind)
              for kind in ("clean", "finding", "refused")}
        return Row(here[0], **of, all=sum(row["programs"] for row in here),
                   wrong=sum(row["programs"] for row in here if not row["right"]))
    def what(row):
        words = {"clean": "right, no findings", "finding": "finding", "refused": "refused", "time": "no end"}
        return words.get(row["verdict"], row["verdict"]) + ("" if row["right"] else ", **not as expected**")
    def cause(row):
        return f"`{row['cause']}`" if row["cause"] else ""
    parts = [sums(here) for here in groups(rows, "{repository}").values()]
    ran = sum(part["clean"] + part["finding"] for part in parts)
    all_of_them = sum(part["all"] for part in parts)
    return table(parts, {
        "repository": "{repository}", "commit": "{commit}", "programs": "{all}",
        "right, no findings": counted_by("clean"),
        "right, findings": counted_by("finding"), "refused": counted_by("refused"),
        "not as expected": counted_by("wrong")}, words=2) + \
        f"Of {all_of_them} programs {ran} compile and run unchanged, with the right verdict: " \
        f"{100 * ran / all_of_them:.0f} %.\n\n" + \
        table(rows, {"program": "{program}", "options and arguments": "{options} {arguments}", "verdict": what,
                     "cause": cause, "s": "{seconds:.0f}"}, words=4)


def models_tables(rows, words):
    """Attention that models use, a table for each family: TFLOP/s per visible pair, and in brackets how many times as
    fast per visible pair the first kernel of its line is."""
    def cell(row):
        return short(row["tflops"]) + ("" if row["ours_over"] == 1 else f" ({number(row['ours_over']):.2f})")
    title = "TFLOP/s (the first column is so many times as fast)"
    return "".join(grid(here, title, "{case}, N = {N}", "{kernel}", cell) for here in groups(rows, "{family}").values())


def speed_table(rows, words):
    """The simulator's own speed: a line per build, a column per number of threads."""
    return grid(rows, filled("GFLOP/s, N = {N}", rows[0]), "{build}",
                lambda row: f"{row['threads']} thread" + "s" * (row["threads"] != 1), lambda row: short(row["gflops"]))


def cpu_table(rows, words):
    """Phase 04 beside another library on the CPU: how many times faster, a line per D and mask, a column per N."""
    memory = max(share(row["ours_mib"], row["torch_mib"]) for row in rows)
    return grid(rows, "torch's time / ours", "D {D}, {mask}", "{N}", "{ratio:.2f}", heading="N = {}") + \
        f"Memory beyond Q, K, V and O: at most {memory:.2f} of torch's.\n\n"


def steps_table(rows, words):
    """Phase 05's steps: each one's time, and as a share of the time of the step before."""
    def times(row):
        return f"{share(row['median_ms'], row['before']):.2f}" if "before" in row else ""
    steps = [rows[0], *(Row(row, before=last["median_ms"]) for row, last in zip(rows[1:], rows))]
    return table(steps, {
        filled("step, one head of N = {N}, D = {D}", rows[0]): "{step}", "ms": lambda row: short(row["median_ms"]),
        "TFLOP/s": lambda row: short(row["tflops"]), "of the step before": times})


def diet_table(rows, words):
    """Steps that were predicted: a table per mask, of each the TFLOP/s for each N, the prediction in brackets, and how
    many times those of the step before. Rows with "predicted" are predictions; a measured row may do without one."""
    lengths, kernels, text = groups(rows, "{N}"), list(groups(rows, "{kernel}")), ""
    for mask in ("no mask", "causal"):
        titles = [title for N in lengths for title in (f"N = {N}: TFLOP/s (predicted)", "of the step before")]
        text += head([mask, *titles, "within 10 % of the prediction"])
        for kernel, before in zip(kernels, [None, *kernels]):
            cells, right = [kernel], []
            for here in lengths.values():
                found = {(row["kernel"], field): number(row[field]) for row in here if row["mask"] == mask
                         for field in ("tflops", "predicted") if field in row}
                tflops, predicted = found.get((kernel, "tflops")), found.get((kernel, "predicted"))
                last = found.get((before, "tflops"))
                both = [short(tflops) if tflops else "", f"({short(predicted)})" if predicted else ""]
                cells += [" ".join(filter(None, both)), f"× {tflops / last:.2f}" if tflops and last else ""]
                if tflops and predicted:
                    right.append(abs(tflops / predicted - 1) <= 0.1)
            verdict = "yes" if all(right) else f"**{sum(right)} of {len(right)}**"
            text += line([*cells, verdict if right else ""])
        text += "\n"
    return text


def sass_table(rows, words):
    """What the compiler made of each step: see tests/bench/sass.py."""
    return table(rows, {
        "step": "{kernel}", "registers": "{registers:d}", "bytes spilled": "{spilled:d}",
        "instructions of a whole tile": "{instructions:d}", "of these mma": "{mma:d}",
        "instructions per mma": lambda row: f"{share(row['instructions'], row['mma']):.2f}",
        "ldmatrix right before their mma": "{waited_for:d} of {ldmatrix:d}"})


def ceilings_table(rows, words):
    """What each mix of instructions reached: a line per mix and number of warps."""
    def cell(name, small=0):
        return lambda row: f"{number(row[name]):.{1 if row[name] < small else 0}f}" if name in row else ""
    return table(rows, {
        "a warp issues, over and over": "{mix}", "warps per SM": cell("warps"),
        "mma: FLOP/clk/SM": cell("mma_flop_per_clk"), "TFLOP/s": cell("tflops"),
        "ldmatrix: B/clk/SM": cell("ldmatrix_bytes_per_clk"), "ex2/clk/SM": cell("ex2_per_clk", 20),
        "SM clock, MHz": cell("sm_mhz")})


def hot_cell(tflops, mhz, watts):
    """Kernels back to back: TFLOP/s, and in brackets the clock, the power, and the share of what the tensor cores of an
    H200's 132 multiprocessors, 4096 FLOP per clock each, could do at this clock."""
    return f"{short(tflops)} ({mhz:.0f} MHz, {watts:.0f} W, {share(tflops * 1e6, 132 * 4096 * mhz) * 100:.0f} %)"


def ablations_table(rows, words):
    """Kernels with one change: their speed over that of the kernel as it is, in brackets what was predicted.
    wrong=false: those whose results are right. wrong=true: the others, and how they run back to back."""
    def cell(row):
        if row["kernel"] == row["base"]:
            return f"{short(row['tflops'])} TFLOP/s"
        times = times_as_fast(row, rows, row["base"])
        if times is None:
            raise Wrong(f"{row['kernel']}: {row['base']} was not measured")
        return f"{times:.2f}" + ("" if row["predicted"] is None else f" ({number(row['predicted']):.2f})")
    wrong, shape = one_of(words, "wrong") == "true", "{mask}, N = {N}"
    shapes, hot = groups(rows, shape), groups((row for row in rows if "hot_tflops" in row), shape)
    text = head(["change", *shapes, *(f"back to back, {each}" for each in hot if wrong)])
    for kernel, here in sorted(groups(rows, "{kernel}").items()):  # by phase
        heats = {filled(shape, row): hot_cell(row["hot_tflops"], row["hot_mhz"], row["hot_w"])
                 for row in here if "hot_tflops" in row}
        if (wrong and heats) if here[0]["base"] == kernel else here[0]["wrong"] == wrong:
            cells = {filled(shape, row): cell(row) for row in here}
            text += line([kernel, *(cells.get(each, "") for each in shapes),
                          *(heats.get(each, "") for each in hot if wrong)])
    return text + "\n"


# What a marker may ask for: functions of the rows that its words choose, and of its words.
def passes_of(row):
    """Of a ring's row: which passes were timed."""
    return "forward and backward" if row["backward"] else "forward"


def spare_table(rows):
    """Of shapes that were timed with some to spare: how many times as fast as one GPU, by how many."""
    tried = {(row["rows"], row["backward"]) for row in rows if row["spare"]}
    return grid([row for row in rows if (row["rows"], row["backward"]) in tried], "multiprocessors to spare",
                lambda row: f"{row['rows']} rows, {passes_of(row)}", "{spare}",
                lambda row: f"{number(row['ratio']):.2f}")


KINDS = {
    "summary": summary_table, "predictions": predictions_table, "gradients": gradients_table, "mutants": mutants_table,
    "public": public_table, "simulators": simulators_table, "speed": speed_table, "cpu": cpu_table,
    "staircase": steps_table, "models": models_tables,
    "ceilings": ceilings_table, "ratios": ratios_table, "beside": beside_tables, "fastest": fastest_table,
    "diet": diet_table, "sass": sass_table, "ablations": ablations_table,
    "sectors": lambda rows, words: grid(rows, "phase and shape", "{case}", "{counter}", counted),
    "dq": lambda rows, words: grid(rows, "inputs, dO alike", "{input}", "{type}: {who}",
                                   lambda row: short(floors_of(row, 0))),
    "memory": lambda rows, words: grid(rows, "peak, MiB", "D {D}, {mask}, N = {N}", "{kernel}",
                                       lambda row: f"{number(row['peak_bytes']) / 2**20:.0f}"),
    "price": lambda rows, words: grid([row for row in rows if "price" in row], "% of both passes", SHAPE, "{N}",
                                      lambda row: f"{100 * number(row['price']['both']):.1f}", heading="N = {}"),
    "sanitizer": lambda rows, words: grid(rows, "phase | type", "{phase} | {type}", "{tool}", "{found:d}", "not run"),
    "hot": lambda rows, words: grid(rows, "back to back", "D {D}, {mask}, N = {N}", "{kernel}",
                                    lambda row: hot_cell(row["tflops"], row["nvml_mhz"], row["power_w"])),
    "ring": lambda rows, words: grid(rows, "rows, layout", "{rows}, {layout}", passes_of,
                                     lambda row: f"{number(row['ratio']):.2f} ({number(row['ring_ms']):.2f} ms)"),
    "calls": lambda rows, words: table([row for row in rows if "eager_us" in row], {
        "B 1, H 16, N 1024, D 64, us": "{kernel}", "CUDA graph": lambda row: f"{number(row['graph_us']):.0f}",
        "eager": lambda row: f"{number(row['eager_us']):.0f}"}),
    "spare": lambda rows, words: spare_table(rows),
    "longest": lambda rows, words: table(rows, {
        "on": lambda row: {"one": "one GPU", "ring": "two, "}[row["what"]] +
                          ("" if row["what"] == "one" else f"{row['group']} heads at a time" if row["group"] else
                           "all heads at once"),
        "rows": lambda row: f"{row['rows']:,}", "forward pass, s": lambda row: f"{number(row['ms']) / 1e3:.1f}"}),
    "picture": lambda rows, words: f"![{one_of(words, 'alt')}]({one_of(words, 'link')})\n\n"}
# Words that these read themselves; all others choose rows.
READ = {"kernel", "over", "about", "wrong", "link", "alt", "of", "show"}


# ---- Markers ---------------------------------------------------------------------------------------------------------

class Marker:
    """What a marker says: the kind of table, words with =, which of its files are in `folder`, and which are not."""

    def __init__(self, text, folder):
        self.kind, *rest = text.split()
        self.words, self.folder, self.files, self.missing = {}, folder, [], []
        for word in rest:
            name, equals, values = word.partition("=")
            if word == "else":
                if not self.missing:
                    break
                self.files, self.missing = [], []
            elif equals:
                self.words.setdefault(name, []).extend(values.replace("_", " ").split(","))
            else:
                (self.files if (folder / word).exists() else self.missing).append(word)
        if not self.files + self.missing:
            raise Wrong(f"a marker '{text.strip()}' without table or file")

    def rows(self):
        """Those that its words choose; predictions stay."""
        wanted = {name: values for name, values in self.words.items() if name not in READ}
        chosen = [row for file in self.files for row in read(self.folder / file)["rows"]
                  if "claim" in row or matches(row, wanted)]
        if self.files and not chosen:
            raise Wrong(f"{' '.join(self.files)}: no row is left")
        return chosen

    def table(self):
        """What belongs behind it."""
        rows, missing = self.rows(), ""
        if self.missing:
            missing = f"Not measured yet: {', '.join(self.missing)} in docs/results.\n"
        if not rows:
            return f"\n{missing}\n"
        text = KINDS[self.kind](rows, self.words) if self.kind in KINDS else sweep_tables(rows, self.kind)
        sources = "<br>\n".join(f"{file}: {environment_line(read(self.folder / file))}" for file in self.files)
        return f"\n{text}{sources}\n{missing}\n"


def environment_line(file):
    """"NVIDIA H200, driver 580, …;\nSM clock 1965 to 1980 MHz while timed; commit abc, 2025-11-21"."""
    where, clocks = file["environment"], [number(row["sm_mhz"]) for row in file["rows"] if "sm_mhz" in row]

    def known(label, name):
        return label + where[name] if where.get(name) else ""
    clock = f"SM clock {min(clocks):.0f} to {max(clocks):.0f} MHz while timed" if clocks else ""
    computer = [known("", "gpu"), known("", "cpu"), known("driver ", "driver"), known("CUDA ", "cuda"),
                known("torch ", "torch")]
    more = "; ".join(filter(None, [clock, known("", "note"), known("commit ", "commit")]))
    lines = [", ".join(filter(None, computer)), ", ".join(filter(None, [more, known("", "date")]))]
    return ";\n".join(textwrap.fill(line, 105) for line in lines if line)  # a page's lines have 120 characters


def renewed(page, begin, close, end, write):
    """The page with what belongs behind each marker, `begin` … `close`, up to its `end`."""
    out, at = "", 0
    while (marker := page.find(begin, at)) >= 0:
        told, tail = page.find(close, marker), page.find(end, marker)
        if not marker < told < tail or marker < page.find(begin, marker + 1) < tail:
            raise Wrong(f"a marker '{begin}…' without its '{close.strip()}' or '{end}'")
        out += page[at:told + len(close)] + write(page[marker + len(begin):told])
        at = tail
    return out + page[at:]


def with_results(page, folder):
    """The page with its tables and figures renewed; the same text where none was stale."""
    def figure(text):
        marker = Marker("range " + text, folder)
        return figure_text(marker.rows(), marker.words)
    page = renewed(page, "<!-- results ", " -->\n", "<!-- end of results -->",
                   lambda text: Marker(text, folder).table())
    return renewed(page, "<!-- range", "-->", "<!-- end -->", figure)


# ---- All of it -------------------------------------------------------------------------------------------------------

def phases_of(program):
    """Of flash-phases: each phase's name, what is new in it, whether it is a kernel, and the bytes that its forward
    pass moves, None where that is another phase's, or where it counts none."""
    text = subprocess.run([program, "help"], capture_output=True, text=True).stdout
    found = re.findall(r"^  (\d\d-\S+) +(\S.*)\n      machines: (sim.*)(?:(?!\n      HBM bytes)|"
                       r"\n      HBM bytes: (?:those of \S+|([\d,]+) for a head with N = 8192, D = 64))$", text, re.M)
    if [name for name, *_ in found] != sorted(path.name for path in ROOT.glob("phases/[0-9][0-9]-*")):
        raise Wrong(f"'{program} help' does not name the folders of phases in their order; build it anew")
    return [(name, change, machines != "sim", int(moved.replace(",", "")) if moved else None)
            for name, change, machines, moved in found]


def phases_table(phases):
    return "\n| phase | what is new |\n|---|---|\n" + "".join(
        line([f"[{name}](phases/{name}/notebook.cpp)", change]) for name, change, *_ in phases) + "\n"


def drawn(results, phases):
    """The pictures: path -> drawing."""
    def rows(*names):
        return [row for name in names if (results / name).exists() for row in read(results / name)["rows"]]
    files = {}
    if phases:
        files["staircase.svg"] = pictures.staircase(
            phases, rows("h200-beside.json", "h200-phases.json", "h200-torch.json"))
    if beside := rows("h200-beside.json"):
        files["tensor-cores.svg"] = pictures.tensor_core_staircase(rows("predictions-tensor-cores.json") + beside)
        files["hopper.svg"] = pictures.speed_lines("13", beside)
    if model := rows("h200-model-training.json"):
        files["training.svg"] = pictures.training_curves(model)
    if ring := rows("h200-ring.json"):
        files["ring.svg"] = pictures.time_line(ring)
    return {results / name: text for name, text in files.items()}


def renew(root, phases, write):
    """Renews what is stale, or only names it; how much was stale."""
    results, stale = root / "docs/results", 0
    fresh = drawn(results, phases)
    for path in [root / "README.md", *sorted(root.glob("docs/**/*.md"))]:
        try:
            fresh[path] = with_results(path.read_text(encoding="utf-8"), results)
            if phases:
                fresh[path] = renewed(fresh[path], "<!-- phases -->", "\n", "<!-- end of phases -->",
                                      lambda _: phases_table(phases))
        except Wrong as wrong:
            raise Wrong(f"{path.relative_to(root)}: {wrong}") from None
    for path, text in fresh.items():
        if not path.exists() or path.read_bytes() != text.encode():
            stale += 1
            print(f"{path.relative_to(root)}: " + (
                "renewed" if write else "differs from docs/results; run python3 docs/results/tables.py --write"))
            if write:
                path.write_bytes(text.encode())
    return stale


def main():
    options = argparse.ArgumentParser(description="Tables, figures and pictures out of docs/results/*.json.")
    mode = options.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="name what is stale, and exit with 1")
    mode.add_argument("--write", action="store_true", help="renew it")
    options.add_argument("--root", type=pathlib.Path, default=ROOT, help="a tree with README.md and docs")
    builds = pathlib.Path(os.environ.get("FLASH_BUILD", ROOT / "build"))
    options.add_argument("--program", type=pathlib.Path, default=builds / "default/bin/flash-phases",
                         help="flash-phases, which knows the phases")
    given = options.parse_args()
    try:
        phases = phases_of(given.program) if given.program.exists() else None
        if not phases:
            why = f"{given.program} is not built, so the list of phases and staircase.svg cannot be looked at"
            if given.check:
                raise Wrong(why)
            print(why)
        return 1 if renew(given.root, phases, given.write) and given.check else 0
    except (Wrong, OSError) as wrong:
        print(f"tables.py: {wrong}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
