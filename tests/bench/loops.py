#!/usr/bin/env python3
# loops.py: what ptxas made of the loops that multiply with wgmma. Fails where one touches local memory (a spill), and
# where one copies lanes' registers to the warp's (R2UR): then ptxas does not know that a descriptor is the same in all
# lanes. At D = 64 that cost phase 19 up to 9 %. Needs cuobjdump, which comes with the CUDA toolkit.
# tests/bench/loops.py CUBIN
import re
import sys

from sass import functions, output, target


def loops_of(code):
    """The innermost loops with wgmma, each a list of instructions; code: [(address, text)]. A loop ends with a branch
    on a condition: one without leads back from an mbarrier's second try, which stands behind the kernel's end."""
    ranges = []
    for at, text in code:
        first = target(text) if re.match(r"@\S+ BRA\b.*0x", text) else at + 1
        body = [t for a, t in code if first <= a <= at]
        if any("HGMMA" in t for t in body):
            ranges.append((first, at, body))
    return [body for first, last, body in ranges
            if not any(first <= f and l <= last and (f, l) != (first, last) for f, l, _ in ranges)]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tests/bench/loops.py CUBIN")
    kernels = count = bad = 0
    for symbol, code in functions(sys.argv[1]):
        if not any("HGMMA" in text for _, text in code):
            continue
        name = re.sub(r"void |\(.*|flash::|on_gpu::", "", output("c++filt", symbol).strip())
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
