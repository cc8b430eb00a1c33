# pictures.py: the pictures of phases as SVG, out of the rows of docs/results/*.json, libraries beside them: all phases,
# with the bytes that each moves and, of kernels, the speed that was measured; the tensor-core phases with what was
# predicted of them; the last of these over N.
# tables.py writes them: staircase.svg, tensor-cores.svg and hopper.svg; training.svg, a model's losses; and ring.svg,
# what the streams of two GPUs did in a ring.
import math

from rows import Wrong, is_ours, number, short

OURS = ["#b07800", "#56b4e9", "#0072b2", "#009e73", "#cc79a7", "#d55e00", "#8a3d70"]
LIBRARIES = {"torch flash": "FlashAttention-2", "torch cudnn": "cuDNN"}


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def num(x):
    """Pixels, with at most one decimal."""
    text = f"{x:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


class Canvas:
    """An SVG document under construction; `more` is further attributes, written as they are."""

    def __init__(self, width, height, title):
        self.body = []
        w, h = num(width), num(height)
        self.raw(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" '
                 'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="#222">')
        self.raw(f"<title>{escaped(title)}</title>\n<style></style>")
        self.rect(0, 0, width, height, 'fill="white"')
        self.text(16, 24, title, 'font-size="15" font-weight="bold"')

    def raw(self, element):
        self.body.append(element + "\n")

    def shape(self, name, more, **at):
        return f"<{name} " + "".join(f'{key}="{num(x)}" ' for key, x in at.items()) + more

    def rect(self, x, y, width, height, more):
        self.raw(self.shape("rect", more, x=x, y=y, width=width, height=height) + "/>")

    def line(self, x1, y1, x2, y2, more):
        self.raw(self.shape("line", more, x1=x1, y1=y1, x2=x2, y2=y2) + "/>")

    def text(self, x, y, text, more=""):
        self.raw(self.shape("text", more, x=x, y=y) + f">{escaped(text)}</text>")

    def path(self, points, more):
        self.raw(f'<polyline points="{points}" fill="none" {more}/>')

    def bar(self, x, width, low, high, y, value, label, colour):
        """From x on, as long as the logarithm of its value says, with the value behind it."""
        length = width * math.log(value / low) / math.log(high / low)
        self.rect(x, y, length, 15, f'fill="{colour}"')
        self.text(x + length + 5, y + 12, label)

    def __str__(self):
        return "".join(self.body) + "</svg>\n"


def staircase(phases, rows):
    """A line for each phase with a forward pass of its own, bytes at the left and speed at the right, and for two
    libraries: narrow enough for a page. The speeds are those at N = 8192, D = 64, no mask, fp16: of the sweeps over
    kernels, and of phase 01's three steps, naive, from its own. `phases`: as tables.py has them."""
    tflops = {}
    for row in rows:
        swept = row["sweep"] == "naive-vs-flash" if row["kernel"] == "naive" else row["sweep"] in ("kernels", "beside")
        if swept and (row["type"], row["N"], row["D"], row["causal"]) == ("float16", 8192, 64, False) and \
                "tflops" in row:
            tflops[row["kernel"]] = number(row["tflops"])
    own = [phase for phase in phases if phase[3] is not None]
    canvas = Canvas(740, 92 + 21 * (len(own) + 2) + 62, "FlashAttention, phase by phase")
    moved, speed = (166, 190, 0.05e9, 40e9), (450, 220, 1, 600)
    canvas.text(moved[0], 56, "HBM bytes of one head", 'font-weight="bold"')
    canvas.text(moved[0], 74, "N = 8192, D = 64, no cache")
    canvas.text(speed[0], 56, "TFLOP/s on an H200", 'font-weight="bold"')
    canvas.text(speed[0], 74, "N = 8192, D = 64, fp16, 64 to 192 heads")

    def name_line(y, label, name):
        canvas.text(16, y + 12, label, 'font-weight="bold"')
        canvas.text(40, y + 12, name)
    y = 92
    for name, _, kernel, count in own:
        name_line(y, name[:2], name[3:])
        canvas.bar(*moved, y, count, f"{short(count * 1e-9)} GB", "#56b4e9" if kernel else "#0072b2")
        if name == phases[0][0]:
            canvas.bar(*speed, y, tflops["naive"], f"{short(tflops['naive'])} (*)", "#bbb")
        elif name in tflops:
            canvas.bar(*speed, y, tflops[name], short(tflops[name]), "#e69f00")
        y += 21
    for kernel, label in LIBRARIES.items():
        name_line(y, "", label)
        canvas.bar(*speed, y, tflops[kernel], short(tflops[kernel]), "#999")
        y += 21
    canvas.text(16, y + 22, "Bytes: each phase's formula, equal to its counts; fp32, or fp16 where a phase takes no "
                "fp32.", 'fill="#666"')
    canvas.text(16, y + 40, "(*) phase 01's three steps as CUDA kernels. Both scales are logarithmic.", 'fill="#666"')
    return str(canvas)


def predicted_tflops(claim, kernel, N):
    """What a prediction says of one kernel at D = 128, no mask: the middle of its range; None where it is about more or
    less."""
    rows = claim["rows"]
    if claim["of"] == "TFLOP/s" and (rows.get("kernel"), rows.get("N"), rows.get("D")) == (kernel, N, 128) and \
            "low" in claim and "high" in claim:
        return (number(claim["low"]) + number(claim["high"])) / 2
    return None


def tensor_core_staircase(rows):
    """A pair of bars per kernel, N = 2048 and 8192, at D = 128, no mask, bf16; a line where the prediction was. `rows`:
    of the sweep beside, and predictions. 13's own steps, 13a and so on, stand before it; the libraries come last."""
    lengths, claims = (2048, 8192), [row for row in rows if "claim" in row]
    shown = {(row["kernel"], row["N"]): number(row["tflops"]) for row in rows
             if "kernel" in row and "tflops" in row and row["N"] in lengths
             and (row["D"], row["causal"], row["type"]) == (128, False, "bfloat16")
             and (is_ours(row["kernel"]) or row["kernel"] in LIBRARIES)}
    if not shown:
        raise Wrong("no row at D = 128, no mask, N = 2048 or 8192 in bf16")
    # 13 itself behind 13a, 13b, …
    kernels = sorted({kernel for kernel, _ in shown}, key=lambda kernel: kernel[:2] + "~" + kernel[3:]
                     if is_ours(kernel) and kernel[2] == "-" else kernel.replace("torch cudnn", "torch~"))
    column, bar, bottom, high, most = 96, 38, 300, 210, max(shown.values())
    canvas = Canvas(40 + column * len(kernels), 350, "Tensor cores, step by step")
    canvas.text(16, 46, "TFLOP/s on an H200, bf16, D = 128, no mask, 16384 tokens in 16 heads: measured")
    canvas.raw('<rect x="16" y="56" width="10" height="10" fill="#f0c875"/>')
    canvas.raw('<rect x="106" y="56" width="10" height="10" fill="#e69f00"/>')
    canvas.text(30, 65, "N = 2048", 'font-size="11"')
    canvas.text(120, 65, "N = 8192", 'font-size="11"')
    canvas.line(196, 61, 214, 61, 'stroke="#000" stroke-width="2"')
    canvas.text(220, 65, "predicted", 'font-size="11"')
    for k, kernel in enumerate(kernels):
        x, ours = 24 + column * k, is_ours(kernel)
        for n, N in enumerate(lengths):
            if (kernel, N) not in shown:
                continue
            left, top = x + (bar + 2) * n, bottom - high * shown[kernel, N] / most
            canvas.rect(left, top, bar, bottom - top,
                        f'fill="{(("#f0c875", "#e69f00") if ours else ("#bbb", "#888"))[n]}"')
            above = top
            for tflops in filter(None, (predicted_tflops(claim, kernel, N) for claim in claims)):
                y = bottom - high * tflops / most
                canvas.line(left - 1, y, left + bar + 1, y, 'stroke="#000" stroke-width="2"')
                above = min(above, y)
            canvas.text(left + bar / 2, above - 5, short(shown[kernel, N]), 'text-anchor="middle" font-size="11"')
        label, _, name = kernel.partition("-") if ours else (LIBRARIES[kernel], "", "")
        canvas.text(x + bar + 1, bottom + 18, label,
                    'text-anchor="middle" font-weight="bold"' + ("" if ours else ' font-size="10"'))
        if name:
            canvas.text(x + bar + 1, bottom + 32, name, 'text-anchor="middle" font-size="10"')
    canvas.line(16, bottom, 24 + column * len(kernels), bottom, 'stroke="#999"')
    return str(canvas)


def speed_lines(first, rows):
    """Lines over N at D = 128, bf16, no mask and causal: the phases from `first` on ("13"), and two libraries, dashed.
    `rows`: of the sweep beside."""
    speeds, labels = {}, {}
    for row in rows:
        kernel = row["kernel"]
        if "tflops" not in row or (row["D"], row["type"]) != (128, "bfloat16"):
            continue
        if is_ours(kernel) and kernel[2] == "-" and kernel[:2] >= first:
            labels[kernel] = kernel[:2]
        elif kernel in LIBRARIES:
            labels[kernel] = {"torch flash": "FA-2"}.get(kernel, LIBRARIES[kernel])
        else:
            continue
        speeds[kernel, row["causal"], number(row["N"])] = number(row["tflops"])
    ours = sorted(kernel for kernel in labels if is_ours(kernel))
    if not ours:
        raise Wrong(f"no row of a phase from {first} on at D = 128 in bf16")
    lengths = sorted({N for _, _, N in speeds})
    panel, top, height = 264, 84, 270
    low, high = 100 * math.floor(min(speeds.values()) / 100), 100 * math.ceil(max(speeds.values()) / 100)

    def y_of(tflops):
        return top + height * (high - tflops) / (high - low)
    canvas = Canvas(760, top + height + 46, f"Phases {first} to {labels[ours[-1]]} over N")
    canvas.text(16, 46, "TFLOP/s on an H200, bf16, D = 128, 16384 tokens in 16 heads: measured")
    for causal in (False, True):
        left = 430 if causal else 44

        def x_of(N):
            return left + 12 + (panel - 24) * math.log2(N / lengths[0]) / math.log2(lengths[-1] / lengths[0])
        canvas.text(left, 74, "causal" if causal else "no mask", 'font-weight="bold"')
        for t in range(low, high + 1, 100):
            canvas.line(left, y_of(t), left + panel, y_of(t), 'stroke="#ddd"')
            canvas.text(left - 6, y_of(t) + 4, num(t), 'text-anchor="end" fill="#666"')
        for N in lengths:
            canvas.text(x_of(N), top + height + 18, num(N), 'text-anchor="middle" fill="#666" font-size="11"')
        canvas.text(left + panel / 2, top + height + 38, "N", 'text-anchor="middle"')
        ends = []  # y, label, colour
        for kernel in sorted(labels):
            colour = OURS[ours.index(kernel) % len(OURS)] if kernel in ours else "#555"
            points = [(x_of(N), y_of(speeds[kernel, causal, N])) for N in lengths if (kernel, causal, N) in speeds]
            canvas.path("".join(f"{num(x)},{num(y)} " for x, y in points), f'stroke-width="2" stroke="{colour}"' +
                        ("" if kernel in ours else ' stroke-dasharray="5 4"'))
            ends += [(y, labels[kernel], colour) for _, y in points[-1:]]
        lowest = 0
        for y, label, colour in sorted(ends, key=lambda end: end[0]):  # from the top down, a line of text apart
            lowest = max(lowest + 14, y)
            canvas.text(left + panel + 4, lowest + 4, label, f'font-weight="bold" fill="{colour}"')
    return str(canvas)


def training_curves(rows):
    """The losses of one model over the steps of its training, by whose attention it has: `rows` with `losses`. Ours is
    drawn last; what is beneath it, dashed and wide, is seen where the curves part."""
    curves = [(row["kernel"], [number(x) for x in row["losses"]]) for row in rows if "losses" in row]
    if len(curves) < 2 or len({len(losses) for _, losses in curves}) != 1 or len(curves[0][1]) < 2:
        raise Wrong("expected two rows or more with as many losses each")
    left, top, width, height, steps = 50, 66, 480, 230, len(curves[0][1])
    every = [x for _, losses in curves for x in losses]
    low, high = math.floor(2 * min(every)) / 2, math.ceil(2 * max(every)) / 2
    canvas = Canvas(720, top + height + 46, "A model learns with either attention")
    canvas.text(16, 46, f"Loss of {number(rows[0]['parameters']) / 1e6:.0f} M parameters, bf16, on an H200")

    def y_of(loss):
        return top + height * (high - loss) / (high - low)
    for half in range(round(2 * low), round(2 * high) + 1):
        canvas.line(left, y_of(half / 2), left + width, y_of(half / 2), 'stroke="#ddd"')
        canvas.text(left - 6, y_of(half / 2) + 4, f"{half / 2:.1f}", 'text-anchor="end" fill="#666"')
    for step in range(0, steps + 1, max(steps // 4, 1)):
        canvas.text(left + width * step / steps, top + height + 18, num(step), 'text-anchor="middle" fill="#666"')
    canvas.text(left + width / 2, top + height + 38, "step", 'text-anchor="middle"')
    for n, (name, losses) in enumerate(sorted(curves, key=lambda curve: curve[0].startswith("flashphases"))):
        ours = name.startswith("flashphases")
        colour = OURS[2] if ours else ("#999", "#e0b000")[n % 2]
        canvas.path("".join(f"{num(left + width * i / (steps - 1))},{num(y_of(x))} " for i, x in enumerate(losses)),
                    f'stroke="{colour}" stroke-width="{1.5 if ours else 4}"')
        canvas.text(left + width + 10, top + 20 + 18 * n, name, f'font-weight="bold" fill="{colour}"')
    return str(canvas)


def time_line(rows):
    """What each stream of each GPU did in one turn of a ring: `rows` of the kind trace, ns of a GPU's own clock. The
    clocks are set by the first exchange, which ends at the same time for both of its sides."""
    events = [dict(row) for row in rows if row.get("kind") == "trace"]
    colours = {"attention": "#0072b2", "exchange": "#e69f00", "merge": "#009e73", "copy": "#56b4e9", "sum": "#cc79a7"}
    if not events or {event["what"] for event in events} - set(colours):
        raise Wrong(f"expected traces of {', '.join(colours)}")
    for gpu in {event["gpu"] for event in events}:
        own = [event for event in events if event["gpu"] == gpu]
        zero = min(event["end"] for event in own if event["what"] == "exchange")
        for event in own:
            event["begin"], event["end"] = ((event[side] - zero) / 1e3 for side in ("begin", "end"))
    first = min(event["begin"] for event in events)
    last = max(event["end"] for event in events)
    lanes = sorted({(event["gpu"], event["stream"]) for event in events})
    left, top, width = 118, 84, 620
    canvas = Canvas(760, top + 34 * len(lanes) + 50, "Two GPUs in a ring, forward and backward")
    x = 16
    for what, colour in colours.items():
        canvas.rect(x, 46, 12, 12, f'fill="{colour}"')
        canvas.text(x + 17, 56, what)
        x += 95
    for n, (gpu, stream) in enumerate(lanes):
        y = top + 34 * n
        canvas.text(16, y + 17, f"GPU {gpu}, {'kernels' if stream == 'compute' else 'transfer'}", 'font-size="11"')
        for event in events:
            if (event["gpu"], event["stream"]) == (gpu, stream):
                begin = left + width * (event["begin"] - first) / (last - first)
                canvas.rect(begin, y, max(width * (event["end"] - event["begin"]) / (last - first), 1), 24,
                            f'fill="{colours[event["what"]]}"')
    bottom = top + 34 * len(lanes)
    for ms in range(0, int((last - first) / 1e3) + 1):
        x = left + width * 1e3 * ms / (last - first)
        canvas.line(x, top - 6, x, bottom, 'stroke="#000" stroke-opacity="0.15"')
        canvas.text(x, bottom + 14, num(ms), 'text-anchor="middle" fill="#666" font-size="11"')
    canvas.text(left + width / 2, bottom + 34, "ms: two attention calls and a merge forward, two calls backward",
                'text-anchor="middle"')
    return str(canvas)
