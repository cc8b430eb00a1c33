# layout_test.py: docs/book/layout.js finds what it is for: a page with each fault, and one without any.
# python3 tests/layout_test.py     (CTest: layout; skipped where there is no browser)
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "docs/book"))
import layout

HEAD = '<!doctype html><meta charset="utf-8"><style>body{margin:0} article{width:300px}</style><body><article>'
LONG = "a_word_that_is_much_too_long_for_a_column_of_three_hundred_pixels_and_has_no_place_to_break"
FAULTS = {  # page: what is said of it
    "cut": (f'<p style="overflow:hidden">{LONG}</p>', "is cut off"),
    "beyond": (f'<p style="width:350px;white-space:nowrap">{LONG}</p>', "goes beyond the window"),
    "pale": ('<p style="color:#ccc">pale words</p>', "has a contrast of 1.6"),
    "small": ('<img src="_images/wide.svg" style="max-width:100%" alt="wide">', "is shown at 50 %"),
    "same": ('<div class="difference"><span class="added">+ a</span><span class="same">b</span></div>',
             "looks like an unchanged one"),
}
GOOD = (f'<p style="overflow-x:auto">{LONG}</p><p style="display:none;color:#fff">unseen</p><details><summary>more'
        '</summary><p>words</p></details><div style="overflow-x:auto"><img src="_images/wide.svg" alt="wide"></div>')
SVG = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 40" width="600" height="40"><text x="{}" y="20"{}>words'
       "</text></svg>")


def main():
    if not layout.browser():
        print("skipped: no browser here (apt-get install chromium)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder)
        (site / "_images").mkdir()
        (site / "_images/wide.svg").write_text(SVG.format(10, ""))
        for name, (body, _) in FAULTS.items():
            (site / f"{name}.html").write_text(HEAD + body)
        (site / "good.html").write_text(HEAD + GOOD)
        said = layout.complaints(site, [*FAULTS, "good"])
        (site / "_images/beyond.svg").write_text(SVG.format(590, ""))
        (site / "_images/tiny.svg").write_text(SVG.format(10, ' font-size="8"'))
        drawn = layout.complaints(site, [])
    wrong = [f"{name}: nothing like '{what}' is said" for name, (_, what) in FAULTS.items()
             if not any(line.startswith(f"{name}.html") and what in line for line in said)]
    wrong += [f"without a fault, and yet: {line}" for line in said if line.startswith(("good", "_images"))]
    wrong += [f"{name}: nothing like '{what}' is said"
              for name, what in (("beyond", "goes beyond"), ("tiny", "too small"))
              if not any(line.startswith(f"_images/{name}.svg") and what in line for line in drawn)]
    print("\n".join(wrong) or "layout: each fault is found, and nothing else")
    return 1 if wrong else 0


sys.exit(main())
