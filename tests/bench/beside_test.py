# beside_test.py: what can be proved about beside_h200.py without a GPU or PyTorch: the work of a case, the same cases
# as flash-gpu-bench, fair turns, the statistics, one line for bad arguments.
# python3 tests/bench/beside_test.py FLASH_GPU_BENCH LIBFLASHPHASES     (CTest: bench.beside)
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import beside_h200 as beside

HERE = pathlib.Path(__file__).resolve().parent
GPU_BENCH, LIBRARY = sys.argv[1:3]
del sys.argv[1:3]


class Work(unittest.TestCase):
    def test_flops_are_4_d_for_every_pair_that_meets(self):
        for causal in (False, True):
            pairs = sum(1 for i in range(37) for j in range(37) if j <= i or not causal)
            self.assertEqual(beside.flops(beside.Case("s", 2, 3, 37, 16, causal, "float16")), 4 * 16 * 6 * pairs)
        forward, backward = ([beside.flops(c) for c in beside.cases(s)] for s in ("summary", beside.BACKWARD))
        self.assertEqual(backward, [2.5 * f for f in forward])
        self.assertEqual(beside.flops(beside.Case("s", 4, 12, 4096, 64, False, "float16")), 206158430208)

    def test_side_by_side_all_shapes_have_the_same_tokens_and_width(self):
        cases = beside.cases("beside")
        self.assertEqual(len(set(cases)), 48)
        for case in cases:
            self.assertEqual((case.B * case.N, case.H * case.D), (16384, 2048))
        bfloat16 = {(c.D, c.N, c.causal) for c in cases if c.type == "bfloat16"}
        self.assertEqual(bfloat16, {(D, N, causal) for D in (64, 128, 256) for causal in (False, True)
                                    for N in (512, 1024, 2048, 4096, 8192, 16384)})

    def test_few_are_heads_of_one_batch_below_what_side_by_side_has(self):
        cases = beside.cases("few")
        self.assertEqual(len(set(cases)), 96)
        self.assertEqual({(case.B, case.type) for case in cases}, {(1, "bfloat16")})
        self.assertEqual({(case.D, case.causal, case.N) for case in cases},
                         {(D, c, N) for D in (64, 128, 256) for c in (False, True) for N in (512, 1024, 2048, 4096)})
        for case in cases:
            most = [c.B * c.H * c.N for c in beside.cases("beside") if c.D == case.D]
            self.assertLess(case.H * case.N, min(most))

    def test_the_other_sweeps_are_those_of_flash_gpu_bench(self):
        lines = subprocess.run([GPU_BENCH, "--dry-run"], capture_output=True, text=True, check=True).stdout
        theirs = {(m[1], *map(int, m.group(2, 3, 6, 4)), m[5] == "causal")
                  for m in re.finditer(r"^(\S+)  B(\d+) H(\d+) D(\d+) (causal|full) +N (\d+)", lines, re.MULTILINE)}
        ours = {case[:-1] for sweep in beside.SWEEPS if sweep not in (*beside.OURS, beside.BACKWARD)
                for case in beside.cases(sweep)}
        self.assertEqual(ours, theirs)
        self.assertGreater(len(ours), 50)

    def test_who_takes_part(self):
        phases = {8: "08-lse", 13: "13-instruction-diet", 14: "14-tma-wgmma"}

        def names(*case):
            def can(number, type, D):
                return (type != "float32" or number == 8) and (D <= 128 or number != 14)
            return beside.contenders(beside.Case(*case, False, "float16"), phases, can)

        self.assertEqual(names("beside", 4, 16, 4096, 128)[:4], [*phases.values(), "torch flash"])
        self.assertEqual(names("beside", 2, 16, 8192, 128)[0], "13-instruction-diet")
        self.assertEqual(names("beside", 4, 8, 4096, 256)[:2], ["13-instruction-diet", "torch flash"])
        self.assertNotIn("torch math", names("beside", 4, 16, 4096, 128))
        self.assertEqual(names("naive-vs-flash", 4, 32, 512, 64), list(beside.LIBRARIES))
        self.assertEqual(names("few", 1, 4, 512, 64), ["13-instruction-diet", "14-tma-wgmma", "torch cudnn"])
        self.assertEqual(names("few", 1, 4, 512, 256), ["13-instruction-diet", "torch cudnn"])
        self.assertEqual(names("hot", 4, 16, 4096, 128), ["14-tma-wgmma", "torch cudnn"])
        self.assertEqual(names("summary", 4, 48, 8192, 64), [*phases.values(), "torch flash", "torch cudnn"])
        self.assertEqual(names(beside.BACKWARD, 4, 48, 8192, 64), ["torch flash", "torch cudnn"])

    def test_the_phases_are_those_of_the_library(self):
        can = beside.Library(LIBRARY).can
        phases = beside.participants(can)
        # 05 to 07 have no LSE; 09 is a second one without tensor cores.
        self.assertEqual([number for number in phases if number < 14], [8, 10, 11, 12, 13])
        self.assertEqual(max(phases), 19)  # a later one adds demands to its kernels
        self.assertFalse(can(1, "float32", 64))
        self.assertTrue(can(13, "bfloat16", 256) and can(14, "bfloat16", 128) and can(8, "float32", 256))
        self.assertFalse(can(14, "float32", 64) or can(14, "float16", 256) or can(13, "float16", 257))


class Statistics(unittest.TestCase):
    def test_median_and_quantiles_are_those_of_timing_hpp(self):
        found = beside.summary([5, 1, 2, 3, 4, 6, 7, 8, 9, 10, 1000])
        self.assertEqual(found, {"samples": 11, "median_ms": 6, "p10_ms": 2, "p90_ms": 10})
        self.assertEqual(beside.summary([3])["median_ms"], 3)
        self.assertEqual(beside.summary([2, 1])["median_ms"], 1.5)

    def test_turns_are_fair(self):
        rounds = beside.turns({"a": 3.0, "b": 3.5, "c": 3.9})
        self.assertEqual(len(rounds), beside.ROUNDS)
        for place in range(3):  # everyone is first, second and last equally often
            seen = [one[place] for one in rounds]
            self.assertEqual({name: seen.count(name) for name in "abc"}, dict.fromkeys("abc", beside.ROUNDS // 3))
        self.assertEqual(rounds[1], ["b", "c", "a"])

    def test_short_kernels_have_more_samples_and_slow_ones_fewer_rounds(self):
        rounds = beside.turns({"short": 0.01, "middle": 1.0, "slow": 31.0})
        count = {name: sum(one.count(name) for one in rounds) for name in ("short", "middle", "slow")}
        self.assertEqual(count, {"short": 90, "middle": 36, "slow": 3})


class Arguments(unittest.TestCase):
    def refused(self, *words, says):
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run([sys.executable, HERE / "beside_h200.py", *words], capture_output=True, text=True,
                                 cwd=folder)
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual((ran.returncode, ran.stdout), (2, ""), ran.stderr)
        self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)
        self.assertIn(says, ran.stderr)

    def test_bad_arguments_are_refused_in_one_line(self):
        self.refused(says="out")
        self.refused("nowhere/out.json", says="no folder 'nowhere'")
        self.refused("out.json", says="--library is missing")
        self.refused("out.json", "--list", says="--library is missing")
        self.refused("out.json", "--library", "libnone.so", says="no file 'libnone.so'")
        self.refused("out.json", "--sweeps", "kernels,all", says="'all' is unknown; expected some of beside,few,hot")
        self.refused("out.json", "--list", "--fast", says="--fast")

    def test_a_plan_is_listed_without_a_gpu(self):
        ran = subprocess.run([sys.executable, HERE / "beside_h200.py", "out.json", "--library", LIBRARY, "--list"],
                             capture_output=True, text=True, check=True)
        *shapes, last = ran.stdout.splitlines()
        self.assertEqual(last, f"{len(shapes)} shapes, {sum(line.count(', ') + 1 for line in shapes)} measurements")
        self.assertEqual(len(shapes), 48)
        self.assertTrue(ran.stdout.startswith("beside 32 32 512 64 False bfloat16 0.069 TFLOP: 08-lse, "), ran.stdout)


if __name__ == "__main__":
    unittest.main()
