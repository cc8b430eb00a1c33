# pages.py: a page's parts, as flash-pages reads them from its source, and what its cells printed become Markdown and a
# Jupyter notebook. Markdown is MyST's, for Sphinx; what has no place in Markdown (folds, claims, differences) is HTML.
# build.py imports it.
import html
import json
import pathlib
import re

from kept import Wrong

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS_PER_MINUTE, CODE_LINES_PER_MINUTE = 200, 20
FOLDED = 10  # lines: a longer text beside a picture is folded


def name_of(file):
    """The page that shows a file of the repository: 01-naive, 05-first-kernel-steps, simulator, results-mutants."""
    path = pathlib.PurePath(file)
    if file.startswith("phases/"):
        return path.parent.name + ("" if path.stem == "notebook" else "-" + path.stem)
    return ("results-" if file.startswith("docs/results/") else "") + path.stem


def with_outputs(file, parts, outputs):
    """A page's parts with the output of each cell behind its code. What is kept has to be of these very cells."""
    joined, left = [], list(outputs)
    for part in parts:
        joined.append(part)
        cell = part["kind"] == "code" and re.search(r'^CELL\((?:"((?:[^"\\]|\\.)*)"\))?', part["text"], re.M)
        if cell:
            title = re.sub(r"\\(.)", r"\1", cell[1]) if cell[1] else None
            if not left or (title and title != left[0]["title"]):
                raise Wrong(f"{file}:{part['line']}: what is kept in docs/book/golden is not of these cells; "
                            "run them: ./flash book --golden")
            joined.append(left.pop(0))
    if left:
        raise Wrong(f"{file}: docs/book/golden keeps {len(left)} cells more than the page has; ./flash book --golden")
    return joined


class Page:
    """One page of a book in its language. Afterwards: its parts with what its cells gave, its Markdown (text), what
    this program itself wrote on it, which nobody translates (made), what its cells say, for a translation (said), and
    complaints (missing)."""

    def __init__(self, book, file, parts, outputs, command):
        self.book, self.file, self.name = book, file, name_of(file)
        self.say, self.cell = book.say, book.cell_words(self.name)
        self.made, self.missing = set(), []
        self.said = []
        for o in outputs:
            self.said += [o["title"], *o["claims"]]
            self.said += [text for picture in o["pictures"] for text in svg_texts(book.drawn(self.name, picture))]
        self.seen = False  # a picture that nobody has to unfold
        self.parts = with_outputs(file, parts, outputs)
        self.text = self.markdown(self.parts, command)

    def markdown(self, parts, command):
        body, code_lines, words, claims = [], 0, 0, []
        asked, shown = "", ""  # the question that is open, and what has been printed since
        say, made = self.say, self.made
        for part in parts:
            kind, text = part["kind"], part["text"]
            if kind == "prose":
                named = r"(?<![\w/(\[`.])(docs/[\w/-]+\.md)"
                text = re.sub(r"(?<=<summary>)[^<]+", lambda m: say(m.group(0)), text)
                body.append(self.linked(re.sub(named, r"[\1](../../\1)", text)))
                words += len(text.split())
            elif kind == "question":
                asked, shown = text, ""
                body.append(f'<div class="question">\n<p class="asks">{say("Predict, before you look:")}</p>\n\n'
                            f'{self.linked(text)}\n</div>\n')
            elif kind == "answer":
                strange = [n for n in numbers_in(text) if n not in numbers_in(asked + shown)]
                if strange:
                    self.missing.append(f"{self.file}:{part['line']}: the answer says {', '.join(strange)}, which the "
                                        "cell does not print")
                body.append(f'<p class="answers">{say("Answer")}</p>\n\n{self.linked(text)}\n</details>\n')
                asked = ""
            elif kind == "exercise":
                body.append('<div class="exercise">\n\n' + exercise(text.strip()) + "\n\n</div>\n")
            elif kind == "exercises":
                title = say("Exercises that grade themselves")
                body.append(f"## {title}\n\n" + "".join(f"- {exercise(line)}\n" for line in text.splitlines()))
                made.add(title)
            elif kind == "code":
                code = fence(text, "cpp")
                if part["folded"]:
                    what = say("code of this cell" if "CELL(" in text else "preparations")
                    code = f'<details class="code"><summary>{what}</summary>\n\n{code}\n</details>\n'
                else:
                    code_lines += text.count("\n")
                body.append(code)
            elif kind == "region":
                code_lines += text.count("\n")
                language = "cuda" if part["file"].endswith((".cu", ".cuh")) else "cpp"
                place = f'[{part["file"]}:{part["first"]}]({self.book.quote(part["file"])}.md)'
                made.add(place)
                number = part["first"]
                body.append(f"```{{code-block}} {language}\n:class: region\n:lineno-start: {number}\n\n{text}```\n\n"
                            f'<div class="place">\n\n{place}\n\n</div>\n')
            elif kind == "difference":
                body.append(difference_html(part, say))
                code_lines += sum(line[0] == "+" for line in text.splitlines())
            else:
                if asked and not shown:
                    body.append(f'<details class="outcome"><summary>{say("What it prints, and the answer")}'
                                "</summary>\n")
                shown += text + "".join(c + "\n" for c in part["claims"]) + " "
                claims += [(part["title"], c) for c in part["claims"]]
                self.seen = self.seen or (not asked and bool(part["pictures"]))
                body.append(self.output(part))
        title, _, rest = "\n".join(body).partition("\n")
        minutes = max(1, round(words / WORDS_PER_MINUTE + code_lines / CODE_LINES_PER_MINUTE))
        kernel = (ROOT / self.file).parent.joinpath("attention.cuh").exists()
        facts = (f'<p class="facts">{minutes} {say("minutes to read")} · {say("needs: nothing")}'
                 f'{say(", the simulator runs the kernels") if kernel else ""} · '
                 f'<a href="{self.name}.ipynb" download>{say("notebook")}</a> · {say("run it:")} '
                 f"<code>./flash notebook {command}</code></p>\n")
        return f"{title}\n\n{facts}\n{rest}\n" + self.verdicts(claims)

    def output(self, part):
        """What a cell gave: its pictures, then what it printed (folded where that is long and there is a picture), and
        its claims."""
        body = [f'<div class="output-title">{html.escape(self.cell(part["title"]))}</div>\n']
        for picture in part["pictures"]:
            body.append(self.picture(picture))
        text = part["text"].strip("\n")
        if text.strip():
            block = f"```{{code-block}} text\n:class: output\n\n{text}\n```\n"
            if part["pictures"] and text.count("\n") >= FOLDED:
                block = f'<details class="code"><summary>{self.say("in numbers")}</summary>\n\n{block}\n</details>\n'
            body.append(block)
        if part["claims"]:
            body.append('<ul class="claims">\n' + "".join(
                f"<li>✓ {with_code(self.cell(claim))}</li>\n" for claim in part["claims"]) + "</ul>\n")
        return "\n".join(body)

    def picture(self, name):
        drawing = translated_svg(self.book.drawn(self.name, name), self.cell)
        self.book.write("pictures/" + name, drawing)
        title = svg_title(drawing)
        self.made |= {f"![{title}](pictures/{name})", title, svg_texts(drawing)[0]}
        return framed(f"![{title}](pictures/{name})")

    def linked(self, text):
        return self.book.with_links(text, self.file)

    def verdicts(self, claims):
        """The table at a page's end: what was claimed and holds, and what was measured elsewhere."""
        say, made = self.say, self.made
        title, holds = say("Predicted, counted, measured"), say("✓ holds")
        head = [say(w) for w in ("cell", "claim", "verdict")]
        intro = say("Checked where the cells ran, on the simulator or on the CPU. `./flash book --check` runs them "
                    "again, and a claim that no longer holds stops it.")
        text = f"\n## {title}\n\n{intro}\n\n| {' | '.join(head)} |\n|---|---|---|\n"
        claims = [(markdown_escape(self.cell(cell)), markdown_escape(self.cell(claim))) for cell, claim in claims]
        made |= {title, intro, holds, *head, *(w for row in claims for w in row)}
        before = ""
        for cell, claim in claims:
            text += f"| {cell if cell != before else ''} | {claim} | {holds} |\n"
            before = cell
        measured = f"docs/book/measured/{self.name}.md"
        if (ROOT / measured).exists():
            figures = self.book.with_figures((ROOT / measured).read_text(), self.name)
            text += "\n" + self.book.with_links(figures, measured)
        return text


def exercise(line):
    """"05.1 how many blocks?" as a page says it."""
    return "`./flash exercise {}`: {}".format(*line.split(" ", 1))


def framed(image):
    """A picture in a frame that scrolls where the window is narrower."""
    return f'<div class="picture">\n\n{image}\n\n</div>\n'


def outside_code(text, change):
    """Changes what is neither a block of code, fenced or indented, nor `code` or a formula."""
    out, fenced, formula = [], False, False
    for line in text.split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        formula = formula != (line.count("$$") % 2 == 1)
        if fenced or formula or "$$" in line or line.startswith(("```", "    ")):
            out.append(line)
        else:
            out.append("".join(s if i % 2 else change(s) for i, s in enumerate(re.split(r"(`[^`]*`)", line))))
    return "\n".join(out)


def with_terms(text, terms):
    """Links each glossary term where a page first says it, in running text."""
    left = {t.lower(): t for t in terms}
    pattern = "|".join(re.escape(t) for t in terms)

    def in_line(piece):
        if piece.startswith(("#", "<", "|", "![", "%")) or not left:
            return piece

        def link(match):
            said = match.group(0)
            term = left.pop(match.group(1).lower(), None)
            if term is None:
                return said
            return f"{{term}}`{said}`" if said == term else f"{{term}}`{said} <{term}>`"
        pieces = re.split(r"(\[[^\]]*\]\([^)]*\)|\{term\})", piece)  # not inside links
        return "".join(p if i % 2 else re.sub(rf"(?<![\w-])({pattern})s?(?![\w-])", link, p, flags=re.I)
                       for i, p in enumerate(pieces))
    for said in re.findall(r"\{term\}`(?:[^`<]*<)?([^`>]+)>?`", text):
        left.pop(said.lower(), None)  # linked by hand
    return outside_code(text, in_line)


def without_marks(text):
    """Leaves out the marks around a figure within a sentence, which tables.py needs: their words are no prose."""
    return re.sub(r"<!-- (range\s[^>]*--|end --)>", "", text)


def numbers_in(text):
    """The numbers of two digits and more that a text says; phase 04 is a name."""
    return re.findall(r"(?<![\w.,])(?<![Pp]hase )\d[\d.,]*\d(?!\w)", text)


def fence(text, language):
    marks = "``````" if "```" in text else "```"
    return f"{marks}{language}\n{text}" + ("" if text.endswith("\n") else "\n") + marks + "\n"


def with_code(text):
    """A claim as HTML; `words` in it are code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def markdown_escape(text):
    """The same for Markdown."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if i % 2 else re.sub(r"([\\`*_{}\[\]<>|$])", r"\\\1", p) for i, p in enumerate(pieces))


SVG_TEXT = re.compile(r"(<(?:text|title)\b[^>]*>)([^<]*)(?=</)")


def svg_title(drawing):
    return markdown_escape(html.unescape(re.search(r"<title>(.*?)</title>", drawing).group(1)))


def svg_texts(drawing):
    return [html.unescape(text) for _, text in SVG_TEXT.findall(drawing)]


def translated_svg(drawing, say):
    return SVG_TEXT.sub(lambda m: m[1] + html.escape(say(html.unescape(m[2]))), drawing)


def difference_html(part, say):
    """Added and removed lines in colour; long stretches without a change folded. No ` in it: with_terms would take the
    text between two of them for code, and what stands beside it for prose."""
    lines = part["text"].splitlines()
    changed = [line[0] != " " for line in lines]
    near = [any(changed[max(0, i - 3):i + 4]) for i in range(len(lines))]
    added, removed = sum(line[0] == "+" for line in lines), sum(line[0] == "-" for line in lines)
    length = sum(line[0] != "-" for line in lines)
    open_ = " open" if added < length / 2 else ""  # nearly all is new: the page has shown it already
    out = [f'<details class="difference"{open_}><summary>{html.escape(part["other"])} → {html.escape(part["file"])}: '
           f'<b class="added">+{added}</b> <b class="removed">−{removed}</b>{say(" of {} lines").format(length)}'
           "</summary><pre>"]
    i = 0
    while i < len(lines):
        j = i
        while j < len(lines) and near[j] == near[i]:
            j += 1
        spans = "".join(f'<span class="{ {"+": "added", "-": "removed"}.get(line[0], "same") }">'
                        f"{html.escape(line).replace('`', '&#96;') or ' '}\n</span>" for line in lines[i:j])
        out.append(spans if near[i] else
                   f'<details><summary>{j - i} {say("unchanged lines")}</summary>{spans}</details>')
        i = j
    # No blank line inside: Markdown would end the block there.
    return re.sub(r"\n(?=\n)", "\n ", "".join(out)) + "</pre></details>\n"


def notebook_json(parts, drawn):
    """The page as a Jupyter notebook, outputs and all; drawn(name) is a picture's SVG."""
    cells, asked = [], False
    for part in parts:
        kind, text = part["kind"], part["text"]
        asked = kind == "question" or (asked and kind != "answer")
        if kind == "question":
            text = "**Predict, before you look.** " + text
        elif kind == "answer":
            text = f"<details><summary>Answer</summary>\n\n{text}\n</details>\n"
        elif kind == "exercise":
            text = exercise(text.strip())
        elif kind == "exercises":
            rows = "".join(f"- {exercise(line)}\n" for line in text.splitlines())
            text = "## Exercises that grade themselves\n\n" + rows
        if kind in ("prose", "question", "answer", "exercise", "exercises"):
            cells.append({"cell_type": "markdown", "metadata": {}, "source": text})
        elif kind == "code":
            tags = {"tags": ["hide-input"]} if part["folded"] else {}
            cells.append({"cell_type": "code", "metadata": tags, "execution_count": None, "outputs": [],
                          "source": text})
        elif kind in ("region", "difference"):
            code = fence(text, "diff" if kind == "difference" else "cpp")
            cells.append({"cell_type": "markdown", "metadata": {}, "source": part["file"] + "\n\n" + code})
        elif cells:
            said = text + "".join(f"✓ {c}\n" for c in part["claims"])
            outputs = cells[-1].setdefault("outputs", [])
            if asked:  # folded, until the reader has answered
                cells[-1]["metadata"]["jupyter"] = {"outputs_hidden": True}
            outputs.append({"output_type": "stream", "name": "stdout", "text": said})
            for picture in part["pictures"]:
                outputs.append({"output_type": "display_data", "metadata": {},
                                "data": {"image/svg+xml": drawn(picture)}})
    language = {"kernelspec": {"name": "xcpp20", "display_name": "C++20", "language": "C++20"},
                "language_info": {"name": "c++"}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": language, "cells": cells}, ensure_ascii=False)


def try_myself():
    """What no page would notice."""
    assert with_terms("A warp, two warps. `warp`", ["warp"]) == "A {term}`warp`, two warps. `warp`"
    assert with_terms("Warps here", ["warp"]) == "{term}`Warps <warp>` here"
    assert with_terms("# warp\n\n    warp\n\n[warp](x) $$warp$$", ["warp"]).count("term") == 0
    assert without_marks("x <!-- range kernel=a\nb.json -->1 to 2<!-- end --> y <!-- phases -->") == \
        "x 1 to 2 y <!-- phases -->"
    assert numbers_in("4,096 in phase 04, 0.5; Phase 19 x20 12.") == ["4,096", "0.5", "12"]
    assert outside_code("a `a`\n```\na\n```\na", str.upper) == "A `a`\n```\na\n```\nA"
    assert with_code("`a<b>` is 1 < 2") == "<code>a&lt;b&gt;</code> is 1 &lt; 2"
    assert markdown_escape("a_b `c_d`") == "a\\_b `c_d`"
    drawing = "<svg><title>One &amp; two</title><text x=\"1\">row 3</text></svg>"
    assert svg_texts(drawing) == ["One & two", "row 3"]
    assert translated_svg(drawing, str.upper) == "<svg><title>ONE &amp; TWO</title><text x=\"1\">ROW 3</text></svg>"
    cells = [{"kind": "code", "line": 3, "text": 'CELL("a \\"b\\"") {\n}\n'}]
    assert with_outputs("f", cells, [{"title": 'a "b"'}])[1]["title"] == 'a "b"'
    for outputs in ([], [{"title": "b"}], [{"title": 'a "b"'}, {"title": "c"}]):
        try:
            with_outputs("f", cells, outputs)
        except Wrong:
            continue
        raise AssertionError(outputs)
