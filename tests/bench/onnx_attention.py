"""onnx_attention.py: ONNX's own node tests of Attention, by libflashphases on the CPU. The package onnx makes the cases
(inputs, and outputs by its reference evaluator) when this runs; nothing of it is stored here.
    pip install onnx && FLASHPHASES_LIBRARY=…/libflashphases.so python3 tests/bench/onnx_attention.py
Prints how many cases passed, were refused by name, failed. Exits with 1 if one failed, with 77 where onnx is absent.
"""

import collections
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "phases/library"))

SKIPPED = 77
# Relative and absolute: the definition's bar for fp32 (docs/conventions.md), where onnx's own runner takes 1e-3. In 16
# bits onnx's reference rounds after each operation: a step of the type, relative, and half a step of numbers near 1.
BARS = {"float32": (2e-6, 1e-7), "float16": (2**-10, 2**-11), "bfloat16": (2**-7, 2**-8)}
OLDEST = (1, 23)  # before, softcap came after the mask, and a row without keys was not 0
LEAST = 70  # cases of onnx 1.23 that must pass; a later version may have more


class Refused(Exception):
    """A case asks for what is no part of attention's definition here."""


def cases():
    """(name, node, opset, inputs, outputs) of each test of Attention itself."""
    from onnx.backend.test.case.node import collect_testcases
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other operators' cases divide by zero, on purpose
        all_cases = collect_testcases("Attention")
    for case in all_cases:
        node = case.model.graph.node[0]
        if len(case.model.graph.node) == 1 and node.op_type == "Attention":  # not its expansion into other operators
            for inputs, outputs in case.data_sets:
                yield case.name, node, case.model.opset_import[0].version, inputs, outputs


def by_name(names, values):
    """The values of the inputs, or outputs, that a node names; those that it leaves out have the name ''."""
    values = iter(values)
    return {position: next(values) for position, name in enumerate(names) if name}


def heads(t, count):
    """[B, S, H * D] as [B, H, S, D], without a copy."""
    return t if t.ndim == 4 else t.reshape(*t.shape[:2], count, -1).transpose(0, 2, 1, 3)


def padded(mask, keys):
    """A mask that ends before the keys do hides the others."""
    import numpy
    missing = keys - mask.shape[-1]
    if mask.shape[-1] == 1 or missing <= 0:
        return numpy.broadcast_to(mask, (*mask.shape[:-1], keys))
    hidden = False if mask.dtype == bool else -numpy.inf
    return numpy.concatenate([mask, numpy.full((*mask.shape[:-1], missing), hidden, mask.dtype)], -1)


def attend(node, inputs):
    """Y by the library, in the case's own layout."""
    import flashphases
    import numpy
    from onnx import helper
    given = by_name(node.input, inputs)
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if 4 in given or 5 in given:
        raise Refused("a past KV")
    if "softmax_precision" in attributes:
        raise Refused("softmax_precision")
    q = heads(given[0], attributes.get("q_num_heads"))
    k, v = (heads(given[i], attributes.get("kv_num_heads")) for i in (1, 2))
    options = {"softcap": attributes.get("softcap", 0.0), "scale": attributes.get("scale")}
    if 3 in given:
        mask = numpy.ascontiguousarray(padded(given[3], k.shape[2]))
        options["mask" if mask.dtype == bool else "bias"] = mask
    if 6 in given:  # the diagonal ends where the keys do
        options["seqused_k"] = given[6].astype(numpy.int32)
    diagonal = "bottom-right" if 6 in given else "top-left"
    causal = diagonal if attributes.get("is_causal", 0) else None
    window = tuple(attributes.get(side + "_window_size", -1) for side in ("left", "right"))
    if window != (-1, -1):
        options["window"] = tuple(None if bound == -1 else bound for bound in window)
        options["align"] = None if causal else diagonal
    y = flashphases.attention(q, k, v, causal=causal, **options)
    return y if given[0].ndim == 4 else y.transpose(0, 2, 1, 3).reshape(*given[0].shape[:2], -1)


def error(y, exact):
    """The largest difference over its bar; infinity where one is finite and the other is not."""
    import numpy
    relative, absolute = BARS[exact.dtype.name]
    got, want = y.astype(numpy.float64), exact.astype(numpy.float64)
    if got.shape != want.shape or y.dtype != exact.dtype or not (numpy.isnan(got) == numpy.isnan(want)).all():
        return numpy.inf
    same = (got == want) | numpy.isnan(want)
    with numpy.errstate(invalid="ignore"):
        return float(numpy.where(same, 0, abs(got - want) / (absolute + relative * abs(want))).max(initial=0))


def main():
    try:
        import onnx
    except ImportError:
        print("skipped: no onnx (pip install onnx)")
        sys.exit(SKIPPED)
    if tuple(int(part) for part in onnx.__version__.split(".")[:2]) < OLDEST:
        print(f"skipped: onnx {onnx.__version__} means something else; expected {OLDEST[0]}.{OLDEST[1]} or newer")
        sys.exit(SKIPPED)
    refused, failed, passed, y_alone, worst = collections.Counter(), [], 0, 0, collections.defaultdict(float)
    for name, node, _, inputs, outputs in cases():
        try:
            y = attend(node, inputs)
        except Refused as reason:
            refused[str(reason)] += 1
            continue
        wanted = by_name(node.output, outputs)
        off = error(y, wanted[0])
        worst[y.dtype.name] = max(worst[y.dtype.name], off)
        if not off <= 1:
            failed.append(f"{name}: {off:.3g} of the bar")
            continue
        passed += 1
        y_alone += len(wanted) > 1
    for line in failed:
        print(line)
    reasons = ", ".join(f"{reason}: {count}" for reason, count in refused.most_common())
    print(f"onnx {onnx.__version__}, {passed + len(failed) + sum(refused.values())} cases: {passed} passed "
          f"({y_alone} of them by Y alone: they also return scores), {sum(refused.values())} refused by name "
          f"({reasons}), {len(failed)} failed")
    print("largest error over its bar: " + ", ".join(f"{dtype} {off:.2g}" for dtype, off in sorted(worst.items())))
    if failed or passed < LEAST:
        sys.exit(1)


if __name__ == "__main__":
    main()
