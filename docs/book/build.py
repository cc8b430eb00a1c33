#!/usr/bin/env python3
# build.py: runs the notebooks and writes the book: a static site that works from disk and asks no network for anything.
# The notebooks read themselves (phases/pages/page.hpp) and print JSON; here that becomes Markdown, and Sphinx a site;
# the second one is the translation (translation.py). ./flash book [NN] [--check | --golden | --messages [PAGE…]]
import argparse
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import translation

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "docs/book"
WORDS_PER_MINUTE, CODE_LINES_PER_MINUTE = 200, 20
KATEX = pathlib.Path("/usr/share/javascript/katex")

# The book's pages beside the notebooks, in their order: file in the repository, name in the site. A closing page stands
# behind the last notebook of its part.
FRONT = ["docs/book/index.md", "docs/book/glossary.md", "docs/book/reading-a-finding.md",
         "docs/book/player.md"]
PARTS = [("Part 1: the algorithm, on a CPU", "04", "docs/book/part-1.md"),
         ("Part 2: the kernels", "09", "docs/book/part-2.md"),
         ("Part 3: tensor cores", "13", "docs/book/part-3.md"),
         ("Part 4: Hopper", "19", "docs/book/part-4.md")]
REFERENCE = sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md")) + \
            sorted(f"docs/results/{p.name}" for p in ROOT.glob("docs/results/*.md"))
LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".py": "python", ".cpp": "cpp", ".hpp": "cpp"}
# Where the site of a language stands in the English one, and what its link to it says.
LOCALES = {"en": ("", "English"), "zh_CN": ("zh", "中文")}
NO_CHAPTER = "---\norphan:\nnosearch:\n---\n"  # a source file that some page links


class Wrong(Exception):
    """What the reader of the terminal should know."""


def name_of(file):
    """The page that shows a file of the repository: 01-naive, 05-first-kernel-steps, simulator, results-mutants."""
    path = pathlib.PurePath(file)
    if file.startswith("phases/"):
        return path.parent.name + ("" if path.stem == "notebook" else "-" + path.stem)
    return ("results-" if file.startswith("docs/results/") else "") + path.stem


class Book:
    def __init__(self, build, out, language="en"):
        self.build, self.language, self.say = build, language, translation.words(language)
        self.site = out / LOCALES[language][0]
        self.common = out.parent / (out.name + ".source")  # what the notebooks printed and drew, for all languages
        self.source = self.common if language == "en" else out.parent / f"{out.name}.{language}.source"
        self.locale = None if language == "en" else translation.Locale(language)
        self.notebooks = []  # (number, file, program)
        for line in (build / "pages").read_text().splitlines():
            self.notebooks.append(tuple(line.split()))
        self.files = FRONT + [n[1] for n in self.notebooks] + [p[2] for p in PARTS] + REFERENCE
        self.quoted = {}  # files of the repository that a page links: shown as pages of their own
        self.missing = []
        self.made = {}  # page: the texts on it that this program wrote itself
        self.figures = {}  # page: the figures within its sentences

    def write(self, name, text):
        """Only what changed, so that Sphinx renders only that."""
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)

    def write_page(self, name, text):
        """A page, with the links to itself in the other languages below its title."""
        up = "" if self.language == "en" else "../"
        links = " · ".join(f'<a href="{up}{folder + "/" if folder else ""}{name}.html" lang="{code.replace("_", "-")}">'
                           f"{label}</a>" for code, (folder, label) in LOCALES.items() if code != self.language)
        line = f'<p class="languages">{links}</p>\n'
        if self.locale and name in self.made and name not in self.locale.complete:
            line += f'<p class="facts">{self.say("This page is not translated yet.")}</p>\n'
        if name in self.made:
            self.made[name] |= translation.in_tables(text, name.startswith("results-"))
            self.made[name] |= {formula.strip() for formula in re.findall(r"\$\$(.*?)\$\$", text, re.S)}
            self.made[name] -= set(re.findall(r"^#+ (.*)$", text, re.M))  # a cell may be called as its section is
        self.write(name + ".md", re.sub(r"^# .*\n", lambda m: m.group(0) + "\n" + line, text, count=1, flags=re.M))

    # ---------------------------------------------------------------- links

    def link(self, target, file):
        """Where a link of a file leads in the book."""
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return target
        path, hash_, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(file), path))
        if path in self.files:
            return name_of(path) + ".md" + hash_ + anchor
        if (ROOT / path).is_dir():
            self.quoted[path] = "folder-" + path.replace("/", "-")
            for entry in sorted((ROOT / path).iterdir()):
                if entry.suffix in LANGUAGES or entry.suffix == ".md":
                    self.quote(f"{path}/{entry.name}")
            return self.quoted[path] + ".md"
        if path.endswith(".svg"):
            self.write("pictures/" + os.path.basename(path), (ROOT / path).read_text())
            return "pictures/" + os.path.basename(path)
        if not (ROOT / path).is_file():
            self.missing.append(f"{file}: {target} is nowhere")
            return "#"
        return self.quote(path) + ".md"

    def quote(self, path):
        if path in self.files:
            return name_of(path)
        self.quoted[path] = "file-" + path.replace("/", "-").replace(".", "-")
        return self.quoted[path]

    def entry(self, path):
        page = name_of(path) if path in self.files else self.quoted.get(path)
        return f"[{path}]({page}.md)" if page else f"`{path}`"

    def with_links(self, text, file):
        lost = re.search(r"^ *%(?!%).*", re.sub(r"(?ms)^```.*?^```", "", text), re.M)
        if lost:
            self.missing.append(f"{file}: Markdown takes this line for a comment: {lost.group(0).strip()}")
        return outside_code(text, lambda t: re.sub(
            r"\]\(([^)\s]+)\)", lambda m: "](" + self.link(m.group(1), file) + ")", t))

    # ---------------------------------------------------------------- pages

    def run(self, file, program, again):
        """The notebook's parts and outputs, run again or as they were kept."""
        kept = self.common / "runs" / (name_of(file) + ".jsonl")
        exe = self.build / program
        if again or not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            done = subprocess.run([exe, "--jsonl", "--svg", self.common / "pictures"], capture_output=True, text=True)
            if done.returncode != 0:
                claims = [c["claim"] for line in done.stdout.splitlines() for c in json.loads(line).get("claims", [])
                          if not c["holds"]]
                raise Wrong(f"{file}: {done.stderr.strip() or 'no longer true: ' + '; '.join(claims)}")
            kept.write_text(done.stdout)
        return [json.loads(line) for line in kept.read_text().splitlines()]

    def page(self, file, parts):
        body, code_lines, words, claims = [], 0, 0, []
        asked, shown = "", ""  # the question that is open, and what has been printed since
        say, made = self.say, self.made[name_of(file)]
        for part in parts:
            kind, text = part["kind"], part["text"]
            if kind == "prose":
                named = r"(?<![\w/(\[`.])(docs/[\w/-]+\.md)"
                text = re.sub(r"(?<=<summary>)[^<]+", lambda m: say(m.group(0)), text)
                body.append(self.with_links(re.sub(named, r"[\1](../../\1)", text), file))
                words += len(text.split())
            elif kind == "question":
                asked, shown = text, ""
                body.append(f'<div class="question">\n<p class="asks">{say("Predict, before you look:")}</p>\n\n'
                            f'{self.with_links(text, file)}\n</div>\n')
            elif kind == "answer":
                strange = [n for n in numbers_in(text) if n not in numbers_in(asked + shown)]
                if strange:
                    self.missing.append(f"{file}:{part['line']}: the answer says {', '.join(strange)}, which the cell "
                                        "does not print")
                body.append(f'<p class="answers">{say("Answer")}</p>\n\n{self.with_links(text, file)}\n</details>\n')
                asked = ""
            elif kind == "exercises":
                body.append(f'## {say("Exercises that grade themselves")}\n\n' + "".join(
                    "- `./flash exercise {}`: {}\n".format(*line.split(" ", 1)) for line in text.splitlines()))
                made.add(say("Exercises that grade themselves"))
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
                place = f'[{part["file"]}:{part["first"]}]({self.quote(part["file"])}.md)'
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
                shown += text + "".join(c["claim"] + "\n" for c in part["claims"]) + " "
                body.append(f'<div class="output-title">{html.escape(part["title"])}</div>\n')
                if text.strip():
                    body.append(f"```{{code-block}} text\n:class: output\n\n{text.strip(chr(10))}\n```\n")
                if part["claims"]:
                    body.append('<ul class="claims">\n' + "".join(
                        f'<li>✓ {html.escape(c["claim"])}</li>\n' for c in part["claims"]) + "</ul>\n")
                    claims += [(part["title"], c["claim"]) for c in part["claims"]]
                for picture in part["pictures"]:
                    title = svg_title(self.common / "pictures" / picture)
                    body.append(f"![{title}](pictures/{picture})\n")
                    made |= {f"![{title}](pictures/{picture})", title}
        title, _, rest = "\n".join(body).partition("\n")
        minutes = max(1, round(words / WORDS_PER_MINUTE + code_lines / CODE_LINES_PER_MINUTE))
        name = name_of(file)
        kernel = (ROOT / file).parent.joinpath("attention.cuh").exists()
        facts = (f'<p class="facts">{minutes} {say("minutes to read")} · {say("needs: nothing")}'
                 f'{say(", the simulator runs the kernels") if kernel else ""} · '
                 f'<a href="{name}.ipynb" download>{say("notebook")}</a> · {say("run it:")} '
                 f"<code>./flash notebook {self.words(file)}</code></p>\n")
        return f"{title}\n\n{facts}\n{rest}\n" + self.verdicts(file, claims)

    def words(self, file):
        """What ./flash notebook wants to hear: the number, and the name where the phase has several pages."""
        number = next(n for n, f, _ in self.notebooks if f == file)
        alone = sum(n == number for n, _, _ in self.notebooks) == 1
        return number if alone else f"{number} {pathlib.Path(file).stem}"

    def verdicts(self, file, claims):
        """The table at a page's end: what was claimed and holds, and what was measured elsewhere."""
        say, made = self.say, self.made[name_of(file)]
        title, holds = say("Predicted, counted, measured"), say("✓ holds")
        head = [say(w) for w in ("cell", "claim", "verdict")]
        intro = say("Checked by this page's run, on the simulator or on the CPU; a claim that no longer held would "
                    "have stopped the book.")
        text = f"\n## {title}\n\n{intro}\n\n| {' | '.join(head)} |\n|---|---|---|\n"
        made |= {title, intro, holds, *head, *(w for cell, c in claims for w in (cell, markdown_escape(c)))}
        before = ""
        for cell, claim in claims:
            text += f"| {cell if cell != before else ''} | {markdown_escape(claim)} | {holds} |\n"
            before = cell
        measured = f"docs/book/measured/{name_of(file)}.md"
        if (ROOT / measured).exists():
            text += "\n" + self.with_links((ROOT / measured).read_text(), measured)
        return text

    def glossary(self):
        """The glossary's terms, longest first."""
        text = (HERE / "glossary.md").read_text()
        body = text[text.index("{glossary}"):text.rindex("```")]
        return sorted((line for line in body.splitlines()[1:] if line and line[0] not in " `"), key=len, reverse=True)

    def write_sources(self, only):
        terms = self.glossary()
        linked = with_terms if self.language == "en" else lambda text, _: text  # a translation's terms: write_catalogs
        self.made = {name_of(f): set() for f in self.files}
        for number, file, program in self.notebooks:
            parts = self.run(file, program, self.language == "en" and only in ("", number))
            self.write_page(name_of(file), linked(self.page(file, parts), terms))
            self.write("extra/" + name_of(file) + ".ipynb", notebook_json(parts, self.common / "pictures"))
        for file in self.files:
            if not file.startswith("phases/"):
                text = self.with_links(self.with_figures((ROOT / file).read_text(), name_of(file)), file)
                own = file in ("docs/book/glossary.md", "docs/book/index.md")
                self.write_page(name_of(file), (text if own else linked(text, terms)) +
                                (self.contents() if file == FRONT[0] else ""))
        for path, name in sorted(self.quoted.items()):
            if (ROOT / path).is_dir():
                rows = "".join(f"- {self.entry(path + '/' + e.name)}\n" for e in sorted((ROOT / path).iterdir()))
                self.write_page(name, f"{NO_CHAPTER}# {path}\n\n{rows}")
            else:
                code = fence((ROOT / path).read_text(errors="replace"),
                             LANGUAGES.get(pathlib.Path(path).suffix, "text"))
                self.write_page(name, f"{NO_CHAPTER}# {path}\n\n{code}")
        keep = {name_of(f) + ".md" for f in self.files} | {n + ".md" for n in self.quoted.values()}
        for old in self.source.glob("*.md"):
            if old.name not in keep:
                old.unlink()
        for file in ("style.css", "katex.js"):
            self.write("static/" + file, (HERE / "static" / file).read_text())
        for file in ["katex.min.css", "katex.js", "contrib/auto-render.js"] + \
                [f"fonts/{p.name}" for p in (KATEX / "fonts").glob("*.woff2")]:
            to = self.source / "static/katex" / file
            to.parent.mkdir(parents=True, exist_ok=True)
            if not to.exists():
                shutil.copyfile(KATEX / file, to)
        self.write("conf.py", (HERE / "conf.py").read_text())
        self.write_player(only)
        if self.language != "en":
            for picture in self.common.glob("pictures/*.svg"):
                self.write("pictures/" + picture.name, picture.read_text())
            self.write_catalogs()
        if self.missing:
            raise Wrong("lost between source and page:\n" + "\n".join(self.missing))

    def write_player(self, only):
        """The page that plays runs of the phases, recorded now."""
        kept = self.common / "extra/player-runs.html"
        if self.language == "en" and (not only or not kept.exists()):
            kept.parent.mkdir(parents=True, exist_ok=True)
            done = subprocess.run([self.build / "bin/flash-recordings", kept], capture_output=True, text=True)
            if done.returncode != 0:
                raise Wrong(done.stderr.strip())
        elif self.language != "en":
            self.write("extra/player-runs.html", kept.read_text())

    def with_figures(self, text, page):
        """A page's text with its figures, which a message recognises (translation.py) by the marks around them."""
        if self.language == "en":
            return without_marks(text)
        text, self.figures[page] = translation.with_figures_named(text)
        return translation.with_figures_marked(text, self.figures[page])

    def write_catalogs(self):
        """The translations for Sphinx: figures put in, and terms linked where a page first says them."""
        terms = self.locale.terms(self.glossary())
        self.write(f"locales/{self.language}/LC_MESSAGES/sphinx.po", translation.theme(self.language))
        for file in self.files:
            page = name_of(file)
            if self.locale.path(page).exists():
                text = (self.source / (page + ".md")).read_text()
                plain = set(re.findall(r"^#+ (.*)$", text, re.M)) | translation.cells(text)
                own = page in ("glossary", "index")
                self.write(f"locales/{self.language}/LC_MESSAGES/{page}.po", self.locale.localized(
                    page, self.figures.get(page, []), {} if own else dict(terms), plain))

    def messages(self):
        """What is to be translated: page to messages; README.md is one of the pages."""
        pages = translation.messages_of(self.source, self.made)
        return {"README": translation.Readme().messages(), **pages}

    def contents(self):
        def tree(caption, names):
            return f'\n```{{toctree}}\n:hidden:\n:caption: "{caption}"\n\n' + "\n".join(names) + "\n```\n"
        text, first = tree("Before you begin", [name_of(f) for f in FRONT[1:]]), "00"
        for caption, last, closing in PARTS:
            pages = [name_of(f) for n, f, _ in self.notebooks if first < n <= last]
            text += tree(caption, pages + [name_of(closing)])
            first = last
        return text + tree("Reference", [name_of(f) for f in REFERENCE])

    def render(self, strict):
        command = ["sphinx-build", "-q", "-b", "html", *(["-W", "--keep-going", "-a"] if strict else []),
                   "-D", f"language={self.language}", "-D", "html_title=" + self.say("FlashAttention, phase by phase"),
                   "-D", "copyright=" + self.say("the authors of FlashPhases; prose CC BY 4.0, code MIT"),
                   "-d", self.source / ".doctrees", self.source, self.site]
        if subprocess.run(command, env={**os.environ, "PYTHONNOUSERSITE": "1"}).returncode != 0:
            raise Wrong("Sphinx found fault with the book; its messages are above")
        self.mend_theme()

    def mend_theme(self):
        """Debian's furo comes unbundled: a style of another package, a script that a browser takes from a server only,
        and no colours for a system that is set to dark. Upstream's has all three in its two files."""
        css, js = self.site / "_static/styles/furo.css", self.site / "_static/scripts/furo.js"
        style, script = css.read_text(), js.read_text()
        elsewhere = re.match(r"@import url\((/javascript/[^)]*)\);\n", style)
        if elsewhere:
            style = pathlib.Path("/usr/share" + elsewhere.group(1)).read_text() + style[elsewhere.end():]
        dark = re.search(r'body\[data-theme="dark"\] (\{[^}]*\})', style)
        if dark and not re.search(r"prefers-color-scheme: ?dark", style):
            style += f'@media (prefers-color-scheme: dark) {{ body:not([data-theme="light"]) {dark.group(1)} }}\n'
        imported = re.match(r'import Gumshoe from "\./(.*)";\n', script)
        if imported:
            script = (js.parent / imported.group(1)).read_text() + script[imported.end():]
        css.write_text(style)
        js.write_text(script)
        # Sphinx 5.3 looks for a translation of this sentence with the number already in it.
        search = self.site / "_static/searchtools.js"
        search.write_text(re.sub(r"`(Search finished, [^`]*)`\s*\)", r'"\1").replace("${resultCount}", resultCount)',
                                 search.read_text()))

    # ---------------------------------------------------------------- checks

    def golden(self, renew):
        """What the notebooks printed, beside what they printed when somebody last looked."""
        stale = []
        for _, file, _ in self.notebooks:
            parts = [json.loads(line) for line in (self.source / "runs" / (name_of(file) + ".jsonl")).open()]
            now = "".join(f'── {p["number"]}. {p["title"]} ──\n{p["text"]}' +
                          "".join(f'✓ {c["claim"]}\n' for c in p["claims"])
                          for p in parts if p["kind"] == "output")
            path = HERE / "golden" / (name_of(file) + ".txt")
            if renew:
                path.write_text(now)
            elif not path.exists():
                stale.append(f"{path.relative_to(ROOT)} is missing")
            else:
                stale += [f"{path.relative_to(ROOT)}:{at}: {what}" for at, what in unlike(path.read_text(), now)]
        names = {name_of(n[1]) + ".txt" for n in self.notebooks}
        stale += [f"{p.relative_to(ROOT)} belongs to no page" for p in (HERE / "golden").glob("*.txt")
                  if p.name not in names]
        if stale:
            raise Wrong("a page no longer prints what it did (./flash book --golden renews what is kept):\n" +
                        "\n".join(stale))

    def check_site(self):
        """Every link leads somewhere in the site, and nothing is loaded from outside."""
        wrong, ids = [], {}
        pages = sorted(self.site.rglob("*.html"))
        texts = {p: p.read_text() for p in pages}
        for page, text in texts.items():
            ids[page.resolve()] = set(re.findall(r'\bid="([^"]+)"', text))
        for page, text in texts.items():
            where = page.relative_to(self.site)
            for tag, attribute, target in re.findall(r'<(\w+)[^>]*?\s(href|src)="([^"]*)"', text):
                target = html.unescape(target)
                outside = re.match(r"(?:[a-z]+:)?//|data:", target)
                if outside:
                    if tag != "a" and not target.startswith("data:"):
                        wrong.append(f"{where}: <{tag}> loads {target}")
                    continue
                path, _, anchor = target.partition("#")
                path = path.partition("?")[0]
                to = (page.parent / path).resolve() if path else page.resolve()
                if not to.exists():
                    wrong.append(f"{where}: {target} is not in the site")
                elif anchor and to.suffix == ".html" and anchor not in ids[to]:
                    wrong.append(f"{where}: {target} has no such place")
        for style in self.site.rglob("*.css"):
            for target in re.findall(r"url\(\s*[\"']?([^)\"']+)", style.read_text()):
                if re.match(r"(?:https?:)?/", target):
                    wrong.append(f"{style.relative_to(self.site)}: loads {target}")
        for script in self.site.rglob("*.js"):
            if re.search(r"^import .* from ", script.read_text(), re.M):
                wrong.append(f"{script.relative_to(self.site)}: imports, which a page on disk may not")
        for _, file, _ in self.notebooks:
            text = texts.get(self.site / (name_of(file) + ".html"), "")
            for what, sign in (("a table of verdicts", "✓ holds"), ("what it needs", "minutes to read"),
                               ("a link to its translation", f'href="zh/{name_of(file)}.html"')):
                if sign not in text:
                    wrong.append(f"{name_of(file)}.html: lacks {what}")
        if len(pages) < len(LOCALES) * len(self.files):
            wrong.append(f"{len(pages)} pages for {len(self.files)} files")
        index = (self.site / "zh/searchindex.js").read_text()
        if not re.search(r'(?:掩码|\\u63a9\\u7801)"?:', index):
            wrong.append("zh/searchindex.js: 掩码 (mask) cannot be found")
        if wrong:
            raise Wrong("the site is not whole:\n" + "\n".join(wrong))


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
    """Leaves out the marks around a figure within a sentence, which flash-tables needs: their words are no prose."""
    return re.sub(r"<!-- (range\s[^>]*--|end --)>", "", text)


def numbers_in(text):
    """The numbers of two digits and more that a text says; phase 04 is a name."""
    return re.findall(r"(?<![\w.,])(?<!phase )\d[\d.,]*\d(?!\w)", text)


def fence(text, language):
    marks = "``````" if "```" in text else "```"
    return f"{marks}{language}\n{text}" + ("" if text.endswith("\n") else "\n") + marks + "\n"


def markdown_escape(text):
    return re.sub(r"([\\`*_{}\[\]<>|$])", r"\\\1", text)


def svg_title(path):
    found = re.search(r"<title>(.*?)</title>", path.read_text())
    return markdown_escape(html.unescape(found.group(1))) if found else path.stem


def difference_html(part, say):
    """Added and removed lines in colour; long stretches without a change folded."""
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
                        f"{html.escape(line) or ' '}\n</span>" for line in lines[i:j])
        out.append(spans if near[i] else
                   f'<details><summary>{j - i} {say("unchanged lines")}</summary>{spans}</details>')
        i = j
    # No blank line inside: Markdown would end the block there.
    return re.sub(r"\n(?=\n)", "\n ", "".join(out)) + "</pre></details>\n"


def notebook_json(parts, pictures):
    """The page as a Jupyter notebook, outputs and all."""
    cells, asked = [], False
    for part in parts:
        kind, text = part["kind"], part["text"]
        asked = kind == "question" or (asked and kind != "answer")
        if kind == "question":
            text = "**Predict, before you look.** " + text
        elif kind == "answer":
            text = f"<details><summary>Answer</summary>\n\n{text}\n</details>\n"
        elif kind == "exercises":
            text = "## Exercises that grade themselves\n\n" + "".join(
                "- `./flash exercise {}`: {}\n".format(*line.split(" ", 1)) for line in text.splitlines())
        if kind in ("prose", "question", "answer", "exercises"):
            cells.append({"cell_type": "markdown", "metadata": {}, "source": text})
        elif kind == "code":
            tags = {"tags": ["hide-input"]} if part["folded"] else {}
            cells.append({"cell_type": "code", "metadata": tags, "execution_count": None, "outputs": [],
                          "source": text})
        elif kind in ("region", "difference"):
            code = fence(text, "diff" if kind == "difference" else "cpp")
            cells.append({"cell_type": "markdown", "metadata": {}, "source": part["file"] + "\n\n" + code})
        elif cells:
            said = text + "".join(f'✓ {c["claim"]}\n' for c in part["claims"])
            outputs = cells[-1].setdefault("outputs", [])
            if asked:  # folded, until the reader has answered
                cells[-1]["metadata"]["jupyter"] = {"outputs_hidden": True}
            outputs.append({"output_type": "stream", "name": "stdout", "text": said})
            for picture in part["pictures"]:
                outputs.append({"output_type": "display_data", "metadata": {},
                                "data": {"image/svg+xml": (pictures / picture).read_text()}})
    language = {"kernelspec": {"name": "xcpp20", "display_name": "C++20", "language": "C++20"},
                "language_info": {"name": "c++"}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": language, "cells": cells}, ensure_ascii=False)


NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?e[-+]\d+")


def unlike(old, new):
    """The lines that differ. Numbers in scientific notation are rounding errors: a factor of 4 between compilers."""
    old, new = old.splitlines(), new.splitlines()
    for at, (a, b) in enumerate(zip(old, new), 1):
        x, y = [float(n) for n in NUMBER.findall(a)], [float(n) for n in NUMBER.findall(b)]
        close = len(x) == len(y) and all(p == q or (p * q > 0 and 0.25 <= p / q <= 4) for p, q in zip(x, y))
        if not close or re.split(r"\s+", NUMBER.sub("~", a)) != re.split(r"\s+", NUMBER.sub("~", b)):
            yield at, f"was '{a}', is '{b}'"
    if len(old) != len(new):
        yield min(len(old), len(new)) + 1, f"{len(old)} lines were kept, {len(new)} came"


def try_myself():
    """What no page would notice."""
    assert not list(unlike("error 2.0e-07, N = 5", "error  7.9e-07, N = 5")) and not list(unlike("0e+00 x", "0e+00 x"))
    for old, new in [("N = 5", "N = 6"), ("2.0e-07", "8.1e-07"), ("1e-07", "-1e-07"), ("1e-07", "0e+00"),
                     ("a\nb", "a"), ("1e-07 2e-07", "1e-07"), ("a", "a\nb")]:
        assert list(unlike(old, new)), (old, new)
    assert with_terms("A warp, two warps. `warp`", ["warp"]) == "A {term}`warp`, two warps. `warp`"
    assert with_terms("Warps here", ["warp"]) == "{term}`Warps <warp>` here"
    assert with_terms("# warp\n\n    warp\n\n[warp](x) $$warp$$", ["warp"]).count("term") == 0
    assert without_marks("x <!-- range kernel=a\nb.json -->1 to 2<!-- end --> y <!-- phases -->") == \
        "x 1 to 2 y <!-- phases -->"
    assert numbers_in("4,096 in phase 04, 0.5; 3 x20 12.") == ["4,096", "0.5", "12"]
    assert outside_code("a `a`\n```\na\n```\na", str.upper) == "A `a`\n```\na\n```\nA"


def main():
    options = argparse.ArgumentParser(description="Writes the book from the notebooks that a build has.")
    options.add_argument("build", type=pathlib.Path, help="the build folder, where `pages` lists the notebooks")
    options.add_argument("out", type=pathlib.Path, help="where the site goes")
    options.add_argument("--only", default="", metavar="NN", help="run this phase's notebooks, keep the others' output")
    options.add_argument("--check", action="store_true", help="printed output, links, nothing from outside, complete "
                         "translations; no warning")
    options.add_argument("--golden", action="store_true", help="keep what the notebooks print now: docs/book/golden")
    options.add_argument("--messages", nargs="*", metavar="PAGE", help="bring the translations' files up to date with "
                         "the English text, and begin that of PAGE")
    chosen = options.parse_args()
    try_myself()
    translation.try_myself()
    out = chosen.out.resolve()
    book = Book(chosen.build.resolve(), out)
    try:
        book.write_sources(chosen.only)
        if chosen.golden:
            book.golden(renew=True)
            return
        translated = [Book(chosen.build.resolve(), out, language) for language in LOCALES if language != "en"]
        for other in translated:
            other.write_sources(chosen.only)
        if chosen.messages is not None:
            for other in translated:
                translation.renew(other.locale, other.messages(), chosen.messages)
            return
        if chosen.check:
            book.golden(renew=False)
            for other in translated:
                translation.check(other.locale, other.messages())
        for each in [book, *translated]:
            each.render(strict=chosen.check)
        if chosen.check:
            book.check_site()
    except (Wrong, translation.Wrong) as error:
        sys.exit(f"book: {error}")
    print(f"{'checked: ' if chosen.check else ''}{len(book.files)} pages, each in {len(LOCALES)} languages; "
          f"open file://{book.site}/index.html" + "".join(f" or file://{t.site}/index.html" for t in translated))


main()
