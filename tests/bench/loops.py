#!/usr/bin/env python3
# loops.py: what ptxas made of the loops that multiply with wgmma. Fails where one touches local memory (a spill), and
# where one copies lanes' registers to the warp's (R2UR): then ptxas does not know that a descriptor is the same in all
# lanes. At D = 64 that cost phase 19 up to 9 %. Needs cuobjdump, which comes with the CUDA toolkit.
# tests/loops.py CUBIN
import os
import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def loops_of(code):
    """The innermost loops with wgmma, each a list of instructions; code: [(address, text)]. A loop ends with a branch
    on a condition: one without leads back from an mbarrier's second try, which stands behind the kernel's end."""
    ranges = []
    for at, text in code:
        branch = re.match(r"@\S+ BRA.*?0x([0-9a-f]+)", text)
        first = int(branch.group(1), 16) if branch else at + 1
        body = [t for a, t in code if first <= a <= at]
        if any("HGMMA" in t for t in body):
            ranges.append((first, at, body))
    return [body for first, last, body in ranges
            if not any(first <= f and l <= last and (f, l) != (first, last) for f, l, _ in ranges)]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tests/loops.py CUBIN")
    kernels = count = bad = 0
    for function in output(os.environ.get("CUOBJDUMP", "cuobjdump"), "-sass", sys.argv[1]).split("Function : ")[1:]:
        code = [(int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,5})\*/ +(.*?) *;", function)]
        if not any("HGMMA" in text for _, text in code):
            continue
        name = re.sub(r"void |\(.*|flash::|on_gpu::", "", output("c++filt", function.split("\n", 1)[0]).strip())
        loops = loops_of(code)
        kernels, count = kernels + 1, count + len(loops)
        if not loops:
            bad += 1
            print(f"{name}: no loop with wgmma was found; mend loops_of()")
        for body in loops:
            for what, pattern, remedy in (
                    ("touches local memory", r"\b(LDL|STL)\b", "spare registers"),
                    ("copies lanes' registers to the warp's", r"\bR2UR\b",
                     "pass what descriptors are made of through uniform(), on a path that all lanes take")):
                found = sum(bool(re.search(pattern, text)) for text in body)
                if found:
                    bad += 1
                    print(f"{name}: a loop of {len(body)} instructions {what} {found} times; {remedy}")
    if kernels and not bad:
        print(f"loops: {count} loops with wgmma of {kernels} kernels, no spill and no R2UR in them")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
