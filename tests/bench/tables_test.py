# tables_test.py: what docs/results/tables.py makes of rows, what it refuses, and that it sees a stale page.
# python3 tests/bench/tables_test.py     (CTest: tables_test; the test tables is about the pages as they are)
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/results"))
sys.dont_write_bytecode = True
import pictures  # noqa: E402
import rows as files  # noqa: E402
import tables  # noqa: E402

TABLES = [sys.executable, "-B", str(ROOT / "docs/results/tables.py")]


def timed(kernel="a", N=512, tflops=1, **more):
    return {"sweep": "s", "kernel": kernel, "B": 1, "H": 1, "N": N, "D": 64, "causal": False, "type": "t",
            "tflops": tflops, **more}


def without(row, name):
    return {key: value for key, value in row.items() if key != name}


class Case(unittest.TestCase):
    """With a folder of result files."""
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, *rows, **environment):
        (self.folder / name).write_text(json.dumps({"environment": environment, "rows": rows}))

    def shown(self, words, *rows):
        """What a marker makes of these rows, but for the line about their file."""
        self.write("rows.json", *rows)
        text = tables.Marker(f"{words} rows.json", self.folder).table()
        self.assertTrue(text.startswith("\n") and text.endswith("rows.json: \n\n"), text)
        return text[1:-len("rows.json: \n\n")]

    def figure(self, words, *rows):
        """And what it makes of them within a sentence."""
        self.write("rows.json", *rows)
        marker = f"<!-- range {words} rows.json -->"
        page = tables.with_results(marker + "?<!-- end -->", self.folder)
        return page.removeprefix(marker).removesuffix("<!-- end -->")

    def refused(self, says, do, *arguments):
        with self.assertRaises(files.Wrong) as caught:
            do(*arguments)
        self.assertIn(says, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))


class Reading(Case):
    def test_what_is_no_result_file_is_refused(self):
        for text, says in {
                "": "Expecting value", "{": "Expecting", "[1]": "expected an object of", "{}": "expected an object of",
                '{"environment": {}, "rows": 1}': "expected an object of", '{"rows": []}': "expected an object of",
                '{"environment": {}, "rows": [1]}': "expected an object of",
                '{"environment": {}, "rows": []} x': "Extra data"}.items():
            (self.folder / "f.json").write_text(text)
            self.refused(says, files.read, self.folder / "f.json")
        self.refused("none.json", files.read, self.folder / "none.json")

    def test_a_name_stands_once(self):
        (self.folder / "f.json").write_text('{"environment": {}, "rows": [{"a": 1, "b": 2, "a": 1}]}')
        self.refused("twice the same name among a, b, a", files.read, self.folder / "f.json")

    def test_nan_and_infinity_are_refused(self):
        for bad in ("NaN", "-Infinity"):
            (self.folder / "f.json").write_text('{"environment": {}, "rows": [{"a": %s}]}' % bad)
            self.refused(f"{bad} is no number", files.read, self.folder / "f.json")
        for bad in (float("nan"), 1e999):
            self.refused("stands where a number should", files.short, bad)
            self.refused("stands where a number should", files.share, bad, 1)

    def test_nothing_is_measured_twice_in_a_file(self):
        self.refused("measured twice: s, a, 1, 1, 512", self.shown, "s", timed(), timed(tflops=2))

    def test_a_missing_field_is_refused(self):
        row = timed("1-a", median_ms=1)
        for name, says in {"kernel": "kernel", "H": "H", "N": "N", "D": "D", "causal": "mask", "type": "type",
                           "median_ms": "median_ms"}.items():
            self.refused(f"rows.json: a row without '{says}'", self.shown, "fastest", without(row, name))

    def test_what_is_no_number_is_not_shown_as_one(self):
        for bad in ("fast", None, True, [1]):
            self.refused("stands where a number should", self.shown, "s", timed(tflops=bad, median_ms=1))
        self.refused("rows.json: {found:d}", self.shown, "sanitizer",
                     {"phase": "05", "type": "t", "tool": "a", "found": "none"})
        self.refused("a part of 0", files.share, 1, 0)

    def test_three_significant_figures(self):
        self.assertEqual([files.short(x) for x in (0.03214, 0.1, 4.567, 78.94, 1234.4)],
                         ["0.0321", "0.100", "4.57", "78.9", "1234"])


class Markers(Case):
    def test_a_table_that_differs_from_the_results_is_stale_and_is_renewed(self):
        page = "before\n<!-- results naive test.json none.json -->\nold\n<!-- end of results -->\nafter\n"

        def written(ms):
            self.write("test.json", timed(sweep="naive", tflops=8.6 / ms, median_ms=ms, sm_mhz=1980),
                       without(timed(N=16384, sweep="naive", out_of_memory_bytes=206158430208), "tflops"),
                       gpu="G", driver="1", cuda="13.0", commit="abc", date="d")
        written(2)
        fresh = tables.with_results(page, self.folder)
        self.assertEqual(fresh, "before\n<!-- results naive test.json none.json -->\n\n"
                         "B1 H1 D64 full, t: TFLOP/s (median time)\n\n| N | a |\n|---|---:|\n| 512 | 4.30 (2.00 ms) |\n"
                         "| 16384 | out of memory (wants 206 GB) |\n\n"
                         "test.json: G, driver 1, CUDA 13.0;\nSM clock 1980 to 1980 MHz while timed; commit abc, d\n"
                         "Not measured yet: none.json in docs/results.\n\n<!-- end of results -->\nafter\n")
        self.assertEqual(tables.with_results(fresh, self.folder), fresh)
        written(4)
        self.assertNotEqual(tables.with_results(fresh, self.folder), fresh)

    def test_markers_that_do_not_end_are_refused(self):
        self.write("rows.json", timed(median_ms=1))
        table, end = "<!-- results s rows.json -->\n", "<!-- end of results -->\n"
        for page in (table, "<!-- results s rows.json\n" + end, table + table + end, end + table,
                     "<!-- range kernel=a over=b rows.json -->?", "<!-- range kernel=a over=b <!-- end -->"):
            self.refused("without its", tables.with_results, page, self.folder)
        self.refused("without table or file", tables.with_results, "<!-- results s -->\n" + end, self.folder)
        self.refused("no sweep is called", tables.with_results, table.replace(" s ", " t ") + end, self.folder)

    def test_files_behind_else_serve_until_those_before_it_are_there(self):
        self.write("old.json", timed(tflops=3), timed("b c", tflops=2))
        marker = "x <!-- range kernel=a over=b_c causal=false\nnew.json else old.json -->"
        self.assertEqual(tables.with_results(marker + "?<!-- end --> y\n", self.folder),
                         marker + "1.50 to 1.50<!-- end --> y\n")
        self.write("new.json", timed(tflops=5), timed("b c", tflops=2))
        self.assertEqual(tables.with_results(marker + "?<!-- end --> y\n", self.folder),
                         marker + "2.50 to 2.50<!-- end --> y\n")
        table = tables.Marker("ratios kernel=a over=b_c none.json else old.json", self.folder).table()
        self.assertIn("| 1.50 |", table)
        self.refused("no row", tables.with_results, marker.replace("new", "no").replace("old", "no") + "?<!-- end -->",
                     self.folder)

    def test_a_picture_waits_for_its_figures(self):
        text = tables.Marker("picture link=p.svg alt=Steps_of_13 none.json", self.folder).table()
        self.assertEqual(text, "\nNot measured yet: none.json in docs/results.\n\n")
        self.assertEqual(self.shown("picture link=p.svg alt=Steps_of_13", timed()), "![Steps of 13](p.svg)\n\n")

    def test_words_choose_rows(self):
        both = [timed(median_ms=1, causal=causal, tflops=tflops) for causal, tflops in ((True, 2), (False, 3))]
        self.assertNotIn("full", self.shown("s causal=true", *both))
        self.assertIn("full", self.shown("s causal=true,false", *both))
        self.refused("no row is left", self.shown, "s D=128", *both)
        self.refused("no row is left", self.shown, "s mask_kind=none", *both)


class Program(Case):
    """tables.py as it is called, on a tree of its own and beside a program of phases."""

    def setUp(self):
        super().setUp()
        self.results = self.folder / "docs/results"
        self.results.mkdir(parents=True)
        folders = sorted(path.name for path in ROOT.glob("phases/[0-9][0-9]-*"))
        self.phases = [f"  {name:20} what is <new> in it\n      machines: sim{' gpu' * (i > 0)}\n      HBM bytes: " +
                       ("1,000,000,000 for a head with N = 8192, D = 64\n" if i < 2 else f"those of {folders[1]}\n") +
                       "      forward:   types: float32\n" for i, name in enumerate(folders)]
        self.first = folders[0]
        self.write("docs/results/h200-phases.json", *(
            timed(kernel, 8192, 10, sweep=sweep, type="float16") for kernel, sweep in
            (("naive", "naive-vs-flash"), ("torch flash", "kernels"), ("torch cudnn", "kernels"),
             (folders[1], "kernels"))))
        (self.folder / "README.md").write_text("a\n<!-- phases -->\n<!-- end of phases -->\nb\n")

    def run_tables(self, *words, phases=None):
        (self.folder / "help").write_text("usage\n\nphases\n" + "".join(phases or self.phases))
        program = self.folder / "flash-phases"
        program.write_text(f'#!/bin/sh\n[ "$*" = help ] && cat {self.folder}/help\n')
        program.chmod(0o755)
        return subprocess.run([*TABLES, "--root", str(self.folder), "--program", str(program), *words],
                              capture_output=True, text=True)

    def test_what_is_stale_is_named_and_written(self):
        stale = self.run_tables("--check")
        told = "differs from docs/results; run python3 docs/results/tables.py --write\n"
        self.assertEqual((stale.returncode, stale.stdout, stale.stderr),
                         (1, f"docs/results/staircase.svg: {told}README.md: {told}", ""))
        self.assertFalse((self.results / "staircase.svg").exists())
        written = self.run_tables("--write")
        self.assertEqual((written.returncode, written.stdout),
                         (0, "docs/results/staircase.svg: renewed\nREADME.md: renewed\n"))
        fresh = self.run_tables("--check")
        self.assertEqual((fresh.returncode, fresh.stdout, fresh.stderr), (0, "", ""))
        page = (self.folder / "README.md").read_text()
        self.assertTrue(page.startswith(
            "a\n<!-- phases -->\n\n| phase | what is new |\n|---|---|\n"
            f"| [{self.first}](phases/{self.first}/notebook.cpp) | what is <new> in it |\n"))
        self.assertTrue(page.endswith(" |\n\n<!-- end of phases -->\nb\n"))
        drawing = (self.results / "staircase.svg").read_text()
        self.assertEqual(drawing.count(">1.00 GB<"), 2)  # phases with a forward pass of their own
        self.assertIn(">10.0 (*)<", drawing)

    def test_a_list_of_other_phases_is_refused(self):
        for phases in (self.phases[1:], [*self.phases, self.phases[-1]], self.phases[::-1],
                       [*self.phases[:-1], self.phases[-1].replace("HBM bytes: ", "HBM bytes ")]):
            refused = self.run_tables("--write", phases=phases)
            self.assertEqual((refused.returncode, refused.stderr.count("\n")), (2, 1), refused.stderr)
            self.assertIn("does not name the folders of phases", refused.stderr)
        self.assertFalse((self.results / "staircase.svg").exists())

    def test_without_the_program_a_check_fails_and_writing_says_what_stays(self):
        none = str(self.folder / "none")
        checked, written = (self.run_tables(mode, "--program", none) for mode in ("--check", "--write"))
        self.assertEqual((checked.returncode, written.returncode), (2, 0))
        self.assertIn("none is not built", checked.stderr)
        self.assertIn("none is not built", written.stdout)

    def test_what_is_wrong_on_a_page_is_said_in_one_line(self):
        (self.folder / "docs/page.md").write_text("<!-- results kernels none.json -->")
        refused = self.run_tables("--write")
        self.assertEqual((refused.returncode, refused.stderr.count("\n")), (2, 1))
        self.assertIn("tables.py: docs/page.md: a marker '<!-- results …' without its", refused.stderr)
        self.assertFalse((self.results / "staircase.svg").exists())  # nothing is written by halves


class Predictions(Case):
    MEASURED = [timed(N=1, median_ms=4), timed(N=2, tflops=3, median_ms=8), timed("08-lse", 2, 6, median_ms=16),
                without(timed(N=4, out_of_memory_bytes=5e9), "tflops")]

    def line(self, claim, *measured):
        text = self.shown("predictions", {"claim": "c", **claim}, *(measured or self.MEASURED))
        return text.split("\n")[2]

    def test_a_verdict_follows_from_the_range_and_the_rows_that_it_selects(self):
        speed = {"of": "TFLOP/s", "rows": {"kernel": "a", "N": [1, 2]}}
        for claim, line in (
                ({"low": 1, "high": 3, **speed}, "| c: 1 to 3 TFLOP/s | 1.00 to 3.00 | as predicted |"),
                ({"low": 2, "high": 3, **speed}, "| c: 2 to 3 TFLOP/s | 1.00 to 3.00 | **wrong**: 1 of 2 below |"),
                ({"high": 0.5, **speed}, "| c: at most 0.5 TFLOP/s | 1.00 to 3.00 | **wrong**: 2 of 2 above |"),
                ({"low": 2, "high": 2.5, **speed},
                 "| c: 2 to 2.5 TFLOP/s | 1.00 to 3.00 | **wrong**: 2 of 2 outside |"),
                ({"low": 1.7, "take": "mean", **speed}, "| c: at least 1.7 TFLOP/s | 1.73 | as predicted |"),
                ({"low": 3, "of": "times the TFLOP/s at N/2", "rows": {"kernel": "a", "N": 2}},
                 "| c: at least 3 times the TFLOP/s at N/2 | 3.00 | as predicted |"),
                ({"high": 1, "of": "times 08-lse's time", "rows": {"kernel": "a", "N": 2}},
                 "| c: at most 1 times 08-lse's time | 0.500 | as predicted |"),
                ({"low": 0.6, "of": "times 08-lse's TFLOP/s", "rows": {"kernel": "a", "N": 2}},
                 "| c: at least 0.6 times 08-lse's TFLOP/s | 0.500 | **wrong**: 1 of 1 below |"),
                ({"low": 5, "of": "GB wanted", "rows": {"N": 4, "causal": False}},
                 "| c: at least 5 GB wanted | 5.00 | as predicted |")):
            self.assertEqual(self.line(claim), line)

    def test_a_claim_about_nothing_is_refused(self):
        for says, claim in (("a row without TFLOP/s", {"of": "TFLOP/s", "rows": {"N": 4}}),
                            ("a row without times the", {"of": "times the TFLOP/s at N/2", "rows": {"N": 1}}),
                            ("a row without times none", {"of": "times none's TFLOP/s", "rows": {"N": 2}}),
                            ("no such row", {"of": "TFLOP/s", "rows": {"N": 3}}),
                            ("no such row", {"of": "TFLOP/s", "rows": {"sweep": "s", "kernel": "b"}}),
                            ("how to take 'luck'", {"of": "luck", "rows": {"N": 2}}),
                            ("'luck' is unknown", {"of": "TFLOP/s", "rows": {"N": 2}, "take": "luck"})):
            self.refused(says, self.line, {"low": 1, **claim})
        self.refused("stands where a number should", self.line, {"low": "1", "of": "TFLOP/s", "rows": {"N": 2}})
        self.refused("without 'rows'", self.line, {"low": 1, "of": "TFLOP/s"})

    def test_what_is_not_measured_yet_says_so(self):
        claim = {"low": 1, "of": "TFLOP/s", "rows": {"sweep": "t", "kernel": "a"}}
        self.assertEqual(self.line(claim), "| c: at least 1 TFLOP/s | not yet |  |")
        self.assertEqual(self.line(claim, timed(sweep="t", tflops=2)),
                         "| c: at least 1 TFLOP/s | 2.00 | as predicted |")

    def test_kernels_that_were_timed_apart_are_not_compared(self):
        self.write("other.json", timed("b", tflops=2))
        claim = {"claim": "c", "low": 1, "of": "times b's TFLOP/s", "rows": {"kernel": "a"}}
        self.assertIn("| not yet |", self.shown("predictions other.json", claim, timed(tflops=3)))
        # Of a file with both, and one with either: those of the first count.
        self.assertIn("| 1.50 | as predicted |",
                      self.shown("predictions other.json", claim, timed(tflops=3), timed("b", tflops=2)))
        self.refused("no row of a beside b", self.shown, "ratios kernel=a over=b other.json", timed(tflops=3))

    def test_about_one_kernel(self):
        claims = [{"claim": name, "low": 1, "of": "TFLOP/s", "rows": {"sweep": "t", **kernel}} for name, kernel in
                  (("one", {"kernel": "a"}), ("two", {"kernel": ["a", "b"]}), ("three", {"kernel": "b"}), ("all", {}))]
        text = self.shown("predictions about=a", *claims)
        self.assertEqual([name for name in ("one", "two", "three", "all") if f"| {name}: " in text], ["one", "two"])


class Beside(Case):
    """Two phases and two libraries at N = 512 and 1024, D = 64; D = 128 of one alone."""
    ROWS = [timed(kernel, N, tflops, sweep="beside", B=2048 // N, H=4, D=D, type="bfloat16", cublas_tflops=700,
                  median_ms=1 / tflops) for kernel, N, D, tflops in (
        ("08-lse", 512, 64, 10), ("13-a", 512, 64, 110), ("torch flash", 512, 64, 100), ("torch cudnn", 512, 64, 200),
        ("13-a", 1024, 64, 130), ("torch flash", 1024, 64, 100), ("13-a", 512, 128, 300))]

    def test_speeds_and_in_brackets_how_many_times_the_libraries(self):
        self.assertEqual(
            self.shown("beside", *self.ROWS),
            "D 64, no mask, bfloat16; B·N = 2048, H = 4\n\n"
            "| N | 08-lse | 13-a | torch flash | torch cudnn | cuBLAS |\n|---|---:|---:|---:|---:|---:|\n"
            "| 512 | 10.0 (0.10, 0.05) | 110 (1.10, 0.55) | 100 | 200 | 700 |\n| 1024 |  | 130 | 100 |  | 700 |\n\n"
            "D 128, no mask, bfloat16; B·N = 2048, H = 4\n\n| N | 13-a | cuBLAS |\n|---|---:|---:|\n"
            "| 512 | 300 | 700 |\n\n")
        self.assertIn("| N | 13-a | cuBLAS |\n|---|---:|---:|\n| 512 | 110 (1.10, 0.55) | 700 |\n",
                      self.shown("beside kernel=13-a D=64", *self.ROWS))
        self.refused("no row is left", self.shown, "beside kernel=13-b", *self.ROWS)

    def test_the_fastest_phase_of_each_shape(self):
        self.assertEqual(self.shown("fastest", *self.ROWS),
                         "| the fastest phase | N = 512: µs | N = 1024: µs |\n|---|---:|---:|\n"
                         "| D 64, no mask, bfloat16, H 4 | 13-a 9.09 (0.55) | 13-a 7.69 |\n"
                         "| D 128, no mask, bfloat16, H 4 | 13-a 3.33 |  |\n\n")
        self.refused("no row of a phase", self.shown, "fastest", timed())

    def test_ratios_of_two_kernels(self):
        self.assertEqual(self.shown("ratios kernel=13-a over=torch_flash", *self.ROWS),
                         "| 13-a / torch flash | N = 512 | N = 1024 |\n|---|---:|---:|\n"
                         "| D 64, no mask, bfloat16 | 1.10 | 1.30 |\n\n")
        self.refused("no row of 13-b", self.shown, "ratios kernel=13-b over=torch_flash", *self.ROWS)

    def test_figures_for_a_sentence(self):
        pair = "kernel=13-a over=torch_flash"
        for words, text in ((pair, "1.10 to 1.30"), (pair + " N=512,2048", "1.10 to 1.10"),
                            (pair + " show=mean", "1.20"), (pair + " show=least", "1.10"),
                            (pair + " show=most", "1.30"),
                            ("of=TFLOP/s D=64", "10.0 to 200"), ("of=TFLOP/s kernel=13-a show=most D=64", "130")):
            self.assertEqual(self.figure(words, *self.ROWS), text)
        for words, says in (("kernel=13-a", "over=VALUE"), ("over=torch_flash", "kernel=VALUE"),
                            ("kernel=13-a,08-lse over=torch_flash", "kernel=VALUE"), (pair + " show=best", "'best'"),
                            ("kernel=13-a over=13-b", "no row"), (pair + " D=128", "no row"),
                            (pair + " made=none", "no row")):
            self.refused(says, self.figure, words, *self.ROWS)


class Tables(Case):
    def test_gradients_are_within_the_bar_all_three_or_not_at_all(self):
        rows = [{"input": "i", "type": "t", "who": who, "bar": 2, "floor": [1e-4] * 3, "error": error}
                for who, error in (("a", [1e-4, 2e-4, 1e-4]), ("b", [3e-2, 1e-4, 1e-4]), ("c", [1e-4, 1e-4, 2.1e-4]))]
        text = self.shown("gradients", *rows)
        self.assertIn("| i | t | a | 1.00e-04 (1.00 ×) | 2.00e-04 (2.00 ×) | 1.00e-04 (1.00 ×) | yes |\n", text)
        self.assertIn("| i | t | b | 3.00e-02 (300.00 ×) | 1.00e-04 (1.00 ×) | 1.00e-04 (1.00 ×) | no |\n", text)
        self.assertIn("| 2.10e-04 (2.10 ×) | no |\n", text)
        self.refused("a part of 0", self.shown, "gradients", {**rows[0], "floor": [0, 1, 1], "error": [0, 1, 1]})
        self.refused("rows.json: list index", self.shown, "gradients", {**rows[0], "floor": [1]})
        self.assertEqual(self.shown("dq", *rows[:2]),
                         "| inputs, dO alike | t: a | t: b |\n|---|---:|---:|\n| i | 1.00 | 300 |\n\n")
        self.assertEqual(self.figure("of=floors_of_dQ who=a,b", *rows), "1.00 to 300")

    def test_a_cell_has_one_row(self):
        row = {"phase": "05", "type": "t", "tool": "a", "found": 0}
        self.refused("two rows for one cell: 05 | t, a", self.shown, "sanitizer", row, row)

    def test_sanitizer_mutants_and_simulators_show_what_is_missing_survived_or_slow(self):
        self.assertEqual(
            self.shown("sanitizer", {"phase": "05", "type": "t", "tool": "a", "found": 0},
                       {"phase": "06", "type": "t", "tool": "b", "found": 3}),
            "| phase | type | a | b |\n|---|---:|---:|---:|\n| 05 | t | 0 | not run |\n| 06 | t | not run | 3 |\n\n")
        self.assertEqual(
            self.shown("mutants", {"kind": "k", "mutant": "x", "verdict": "caught", "by": "T<a>"},
                       {"kind": "k", "mutant": "y", "verdict": "SURVIVED", "by": ""}),
            "k: 1 of 2 caught\n\n| wrong version | noticed by |\n|---|---|\n| x | `T<a>` |\n| y | **SURVIVED** |\n\n")
        self.assertEqual(
            self.shown("simulators",
                       {"simulator": "s", "checks": "none", "ours": True, "gflops": 10, "slowest": 9, "fastest": 11},
                       {"simulator": "o", "checks": "all", "ours": False, "gflops": 0.02, "slowest": 0,
                        "fastest": 0.03}),
            "| simulator | checks that are on | GFLOP/s | rounds | s is faster by |\n|---|---|---:|---:|---:|\n"
            "| s | none | 10 | 9 to 11 |  |\n| o | all | 0.02 | 0 to 0.03 | × 500 |\n\n")
        self.assertEqual(
            self.shown("speed", {"build": "a", "N": 64, "threads": 1, "gflops": 2},
                       {"build": "b", "N": 64, "threads": 8, "gflops": 0.5}),
            "| GFLOP/s, N = 64 | 1 thread | 8 threads |\n|---|---:|---:|\n| a | 2.00 |  |\n| b |  | 0.500 |\n\n")

    def test_public_programs_are_counted_and_each_has_its_cause(self):
        one = {"repository": "a/b", "commit": "12", "program": "p", "programs": 3, "options": "", "arguments": "7",
               "verdict": "clean", "right": True, "cause": "", "seconds": 2.4}
        self.assertEqual(
            self.shown("public", one, {**one, "program": "q", "programs": 1, "verdict": "refused", "cause": "no asm"},
                       {**one, "repository": "c/d", "program": "r", "programs": 4, "verdict": "time", "right": False},
                       {**one, "repository": "c/d", "program": "s", "programs": 2, "verdict": "finding",
                        "cause": "race: x"}),
            "| repository | commit | programs | right, no findings | right, findings | refused | not as expected |\n"
            "|---|---|---:|---:|---:|---:|---:|\n| a/b | 12 | 4 | 3 |  | 1 |  |\n| c/d | 12 | 6 |  | 2 |  | 4 |\n\n"
            "Of 10 programs 5 compile and run unchanged, with the right verdict: 50 %.\n\n"
            "| program | options and arguments | verdict | cause | s |\n|---|---|---|---|---:|\n"
            "| p |  7 | right, no findings |  | 2 |\n| q |  7 | refused | `no asm` | 2 |\n"
            "| r |  7 | no end, **not as expected** |  | 2 |\n| s |  7 | finding | `race: x` | 2 |\n\n")

    def test_the_cpu_beside_another_library(self):
        self.assertEqual(
            self.shown("cpu", {"D": 64, "N": 8, "causal": False, "ratio": 0.876, "ours_mib": 1, "torch_mib": 3},
                       {"D": 64, "N": 16, "causal": True, "ratio": 2, "ours_mib": 2, "torch_mib": 2.5}),
            "| torch's time / ours | N = 8 | N = 16 |\n|---|---:|---:|\n| D 64, no mask | 0.88 |  |\n"
            "| D 64, causal |  | 2.00 |\n\nMemory beyond Q, K, V and O: at most 0.80 of torch's.\n\n")

    def test_ceilings_leave_empty_what_a_mix_does_not_contain(self):
        self.write("rows.json", {"mix": "8 mma + 2 ex2", "warps": 16, "sm_mhz": 1801.2, "mma_flop_per_clk": 2608.4,
                                 "tflops": 620.5, "ex2_per_clk": 5.094},
                   {"mix": "4 ldmatrix", "warps": 4, "sm_mhz": 1980, "ldmatrix_bytes_per_clk": 127.9})
        self.assertIn(
            "\n| 8 mma + 2 ex2 | 16 | 2608 | 620 |  | 5.1 | 1801 |\n| 4 ldmatrix | 4 |  |  | 128 |  | 1980 |\n\n"
            "rows.json: SM clock 1801 to 1980 MHz while timed\n",
            tables.Marker("ceilings rows.json", self.folder).table())

    def test_counters_show_both_where_they_differ(self):
        self.assertEqual(
            self.shown("sectors", {"case": "x", "counter": "a", "simulator": 1000, "gpu": 1000},
                       {"case": "x", "counter": "b", "simulator": 1000, "gpu": 2},
                       {"case": "y", "counter": "b", "simulator": None, "gpu": 7}),
            "| phase and shape | a | b |\n|---|---:|---:|\n| x | 1,000 | **1,000 / 2** |\n| y |  | 7 |\n\n")

    def test_attention_of_models_has_a_table_for_each_family(self):
        def row(family, case, kernel, tflops, over, what="forward"):
            return timed(kernel, tflops=tflops, family=family, case=case, ours_over=over, sweep=f"{case}, {what}",
                         **{"pass": what})
        rows = [row("heads", "full", "25", 600, 1), row("heads", "full", "flex", 300, 2.004),
                row("heads", "causal", "25", 500, 1), row("masks", "window", "26", 400, 1),
                row("masks", "window", "26", 99, 1, "backward")]
        title = "| TFLOP/s (the first column is so many times as fast) |"
        self.assertEqual(self.shown("models pass=forward", *rows),
                         f"{title} 25 | flex |\n|---|---:|---:|\n| full, N = 512 | 600 | 300 (2.00) |\n"
                         f"| causal, N = 512 | 500 |  |\n\n{title} 26 |\n|---|---:|\n| window, N = 512 | 400 |\n\n")

    def test_a_ring_beside_one_gpu(self):
        def row(rows, spare, ratio, backward=0):
            return {"rows": rows, "layout": "striped", "backward": backward, "spare": spare, "ratio": ratio,
                    "ring_ms": 2}
        self.assertEqual(self.shown("ring", row(8, 0, 1.234), row(8, 0, 2, 1)),
                         "| rows, layout | forward | forward and backward |\n|---|---:|---:|\n"
                         "| 8, striped | 1.23 (2.00 ms) | 2.00 (2.00 ms) |\n\n")
        self.assertEqual(self.shown("spare", row(8, 0, 1.2), row(8, 4, 1.1), row(9, 0, 1)),  # 9 was not tried with any
                         "| multiprocessors to spare | 0 | 4 |\n|---|---:|---:|\n| 8 rows, forward | 1.20 | 1.10 |\n\n")
        self.assertEqual(self.shown("longest", {"what": "one", "group": 0, "rows": 1000, "ms": 1500},
                                    {"what": "ring", "group": 0, "rows": 800, "ms": 100},
                                    {"what": "ring", "group": 16, "rows": 1800, "ms": 2049}),
                         "| on | rows | forward pass, s |\n|---|---:|---:|\n| one GPU | 1,000 | 1.5 |\n"
                         "| two, all heads at once | 800 | 0.1 |\n| two, 16 heads at a time | 1,800 | 2.0 |\n\n")
        self.assertEqual(self.shown("calls", {"kernel": "a", "eager_us": 9.6, "graph_us": 5}, {"host_us": 3}),
                         "| B 1, H 16, N 1024, D 64, us | CUDA graph | eager |\n|---|---:|---:|\n| a | 5 | 10 |\n\n")

    def test_steps_that_were_predicted(self):
        def step(kernel, **more):
            return {"kernel": kernel, "N": 512, "causal": False, **more}
        predicted = [step("0-a", predicted=100), step("1-b", predicted=200)]
        measured = [step("0-a", tflops=109), step("1-b", tflops=218), step("0-a", tflops=50, N=2048),
                    step("0-a", tflops=70, causal=True)]
        text = self.shown("diet", *measured, *predicted)
        self.assertIn("\n| 0-a | 109 (100) |  | 50.0 |  | yes |\n| 1-b | 218 (200) | × 2.00 |  |  | yes |\n", text)
        self.assertIn("\n| 0-a | 70.0 |  |  |  |  |\n", text)  # causal, not predicted
        self.assertIn("\n| 1-b | (200) |  |  |\n", self.shown("diet", *predicted))
        self.assertIn("| 89.0 (100) |  | **0 of 1** |", self.shown("diet", step("0-a", tflops=89), *predicted))
        self.assertIn("\n| 0-a | 9 | 8 | 300 | 128 | 2.34 | 31 of 64 |\n",
                      self.shown("sass", {"kernel": "0-a", "registers": 9, "spilled": 8, "instructions": 300,
                                          "mma": 128, "ldmatrix": 64, "waited_for": 31}))
        self.assertEqual(self.shown("staircase", {"step": "a", "N": 8, "D": 4, "median_ms": 2, "tflops": 1},
                                    {"step": "b", "N": 8, "D": 4, "median_ms": 1, "tflops": 2}).split("\n", 2)[2],
                         "| a | 2.00 | 1.00 |  |\n| b | 1.00 | 2.00 | 0.50 |\n\n")

    def test_ablations_are_shown_over_the_kernel_as_it_is(self):
        def change(name, tflops, **more):
            return timed(name, tflops=tflops, **{"base": "1-base", "predicted": None, "wrong": False, **more})
        hot = {"hot_tflops": 300, "hot_mhz": 1500, "hot_w": 600}
        rows = [change("1-base", 200, **hot), change("1-x", 100, predicted=0.4), change("1-y", 300, wrong=True, **hot)]
        self.assertEqual(self.shown("ablations wrong=false", *rows),
                         "| change | no mask, N = 512 |\n|---|---:|\n| 1-x | 0.50 (0.40) |\n\n")
        self.assertEqual(self.shown("ablations wrong=true", *rows),
                         "| change | no mask, N = 512 | back to back, no mask, N = 512 |\n|---|---:|---:|\n"
                         "| 1-base | 200 TFLOP/s | 300 (1500 MHz, 600 W, 37 %) |\n"
                         "| 1-y | 1.50 | 300 (1500 MHz, 600 W, 37 %) |\n\n")
        self.refused("1-base was not measured", self.shown, "ablations wrong=false", rows[1])

    def test_the_summary_takes_the_fastest_blocks_and_the_later_measurement(self):
        def row(kernel, tflops, **more):
            return timed(kernel, 8192, tflops, B=4, H=48, **{"sweep": "kernels", **more})
        name = next(path.name for path in ROOT.glob("phases/09-*"))
        self.assertEqual(
            self.shown("summary", row("x-one", 20), row("09 atomic 64x32", 30), row("09 atomic 32x64", 10),
                       row("torch flash", 40), row("torch flash", 50, sweep="summary-backward"),
                       row("torch cudnn", 80), row("torch cudnn", 100, sweep="summary-backward"),
                       row("x-one", 40, sweep="summary"), row("torch math", 1), row("x-one", 1, sweep="other"),
                       {**row("x-one", 1), "N": 4096}),
            "B4 H48 D64, N = 8192, t: TFLOP/s (% of FlashAttention-2, % of cuDNN)\n\n"
            "| kernel | forward | forward, causal | backward | backward, causal |\n|---|---:|---:|---:|---:|\n"
            f"| {name} |  |  | 30.0 (60, 30) |  |\n| torch cudnn | 80.0 (200, 100) |  | 100 (200, 100) |  |\n"
            "| torch flash | 40.0 (100, 50) |  | 50.0 (100, 50) |  |\n| x-one | 40.0 (100, 50) |  |  |  |\n\n")
        self.refused("no row of the summary's shape", self.shown, "summary", timed())


class Pictures(Case):
    def read(self, *rows):
        self.write("rows.json", *rows)
        return files.read(self.folder / "rows.json")["rows"]

    def test_tensor_cores_have_a_bar_per_kernel_and_n_and_a_line_where_it_was_predicted(self):
        claim = {"claim": "c", "low": 40, "high": 60, "of": "TFLOP/s",
                 "rows": {"kernel": "13-diet", "D": 128, "N": 8192}}
        speeds = [timed(kernel, N, tflops, D=128, type="bfloat16") for kernel, N, tflops in (
            ("13-diet", 2048, 80), ("torch cudnn", 2048, 90), ("torch flash", 2048, 70), ("13a-scale", 2048, 60),
            ("13-diet", 8192, 100), ("13-diet", 4096, 95), ("torch math", 2048, 1))]
        drawing = pictures.tensor_core_staircase(self.read(claim, *speeds))
        for colour, count in (("#f0c875", 2), ("#e69f00", 1), ("#bbb", 2)):
            self.assertEqual(drawing.count(f'fill="{colour}"/>') - (colour != "#bbb"), count)  # one in the legend
        order = [drawing.index(f">{name}<") for name in ("13a", "13", "FlashAttention-2", "cuDNN")]
        self.assertEqual(order, sorted(order))
        self.assertNotIn("math", drawing)
        # 100 is 210 pixels above 300; the prediction, 50, is half way.
        self.assertIn('y="90" width="38" height="210"', drawing)
        self.assertIn('y1="195"', drawing)
        self.refused("no row at D = 128", pictures.tensor_core_staircase, self.read(claim))

    def test_speeds_over_n_have_a_line_per_phase_from_a_number_on_and_libraries_dashed(self):
        drawing = pictures.speed_lines("13", self.read(*(
            timed(kernel, N, tflops, causal=causal, D=128, type="bfloat16") for kernel, N, causal, tflops in (
                ("12-old", 512, False, 50), ("13-diet", 512, False, 200), ("13-diet", 2048, False, 300),
                ("14-new", 512, True, 250), ("torch cudnn", 512, False, 280), ("torch flash", 512, False, 210)))))
        self.assertIn(">Phases 13 to 14 over N<", drawing)
        self.assertNotIn(">12<", drawing)
        # 200 and 300 are the ends of the axis, 270 pixels apart; N = 512 and 2048 of the panel, 12 pixels inside it.
        self.assertIn('points="56,354 296,84 "', drawing)
        self.assertEqual(drawing.count("stroke-dasharray"), 4)  # two libraries, with a mask and without
        self.refused("no row of a phase from 15 on", pictures.speed_lines, "15", self.read(timed("13-diet")))

    def test_training_has_a_curve_for_each_attention(self):
        def curve(kernel, *losses):
            return {"sweep": "model", "kernel": kernel, "parameters": 51e6, "losses": losses}
        drawing = pictures.training_curves(self.read(curve("flashphases", 5, 4, 3.5), curve("torch sdpa", 5, 4, 3)))
        self.assertIn("Loss of 51 M parameters", drawing)
        # 5 and 3 are the ends of the axis, 230 pixels apart; three steps, 480 pixels. Ours is on top.
        self.assertIn('points="50,66 290,181 530,238.5 "', drawing)
        self.assertLess(drawing.index('points="50,66 290,181 530,296 "'), drawing.index("530,238.5"))
        self.refused("as many losses each", pictures.training_curves,
                     self.read(curve("a", 1, 2), curve("b", 1)))
        self.refused("two rows or more", pictures.training_curves, self.read(curve("a", 1, 2), timed("b")))

    def test_a_time_line_is_set_by_the_first_exchange(self):
        def event(gpu, stream, what, begin, end):
            return {"kind": "trace", "gpu": gpu, "stream": stream, "what": what, "begin": begin, "end": end}
        drawing = pictures.time_line(self.read(
            event(0, "transfer", "exchange", 0, 1e6), event(0, "compute", "attention", 0, 4e6),
            event(1, "transfer", "exchange", 700e6, 701e6), event(1, "compute", "attention", 700e6, 702e6), timed("b")))
        # Whatever the clocks say, both begin together: 620 pixels are 4 ms.
        self.assertEqual(drawing.count('x="118" y="118" width="155"'), 1)
        self.assertEqual(drawing.count('x="118" y="186" width="155"'), 1)
        self.assertIn('x="118" y="84" width="620"', drawing)
        self.assertIn('x="118" y="152" width="310"', drawing)
        self.refused("expected traces of attention", pictures.time_line, self.read(timed("b")))
        self.refused("expected traces of attention", pictures.time_line, self.read(event(0, "transfer", "sleep", 0, 1)))

    def test_text_is_escaped(self):
        canvas = pictures.Canvas(10, 10, 'a <b> & "c"')
        self.assertIn("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>", str(canvas))
        self.assertEqual([pictures.num(x) for x in (0.04, -0.04, 1.25, 3.0, 10)], ["0", "0", "1.2", "3", "10"])


if __name__ == "__main__":
    unittest.main()
