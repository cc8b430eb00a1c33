#!/usr/bin/env python3
# build.py: writes the book: a static site that works from disk and asks no network for anything. Its pages come from
# their sources (flash-pages reads them) and from what their cells printed and drew (kept.py); here they become Markdown
# (pages.py) and a site (website.py), in two languages (translation.py). ./flash help says what ./flash book can do.
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

import kept
import layout
import pages
import website
import translation
from kept import Wrong
from pages import fence, name_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "docs/book"

# The book's pages beside the notebooks: file in the repository. A closing page stands behind the last notebook of its
# part; what helps with all of them comes behind the parts, so that the first page leads to phase 01.
FRONT = "docs/book/index.md"
PARTS = [("Part 1: the algorithm, on a CPU", "04", "docs/book/part-1.md"),
         ("Part 2: the kernels", "09", "docs/book/part-2.md"),
         ("Part 3: tensor cores", "13", "docs/book/part-3.md"),
         ("Part 4: Hopper", "19", "docs/book/part-4.md"),
         ("Part 5: the backward pass", "24", "docs/book/part-5.md"),
         ("Part 6: what models use", "29", "docs/book/part-6.md"),
         ("Part 7: several machines", "30", None)]
BESIDE = ["docs/book/glossary.md", "docs/book/reading-a-finding.md", "docs/book/player.md"]
REFERENCE = sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md")) + \
            sorted(f"docs/results/{p.name}" for p in ROOT.glob("docs/results/*.md"))
LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".py": "python", ".cpp": "cpp", ".hpp": "cpp"}
# Where the site of a language stands in the English one, and what its link to it says.
LOCALES = {"en": ("", "English"), "zh_CN": ("zh", "中文")}
NO_CHAPTER = "---\norphan:\nnosearch:\n---\n"  # a source file that some page links


class Book:
    def __init__(self, build, out, outputs, language="en"):
        self.build, self.outputs, self.language, self.say = build, outputs, language, translation.words(language)
        self.site = out / LOCALES[language][0]
        self.source = out.parent / (out.name + ("" if language == "en" else f".{language}") + ".source")
        self.locale = None if language == "en" else translation.Locale(language)
        self.notebooks = []  # (number, file, program)
        for line in (build / "pages").read_text().splitlines():
            self.notebooks.append(tuple(line.split()))
        self.files = [FRONT] + [n[1] for n in self.notebooks] + [p[2] for p in PARTS if p[2]] + BESIDE + REFERENCE
        self.quoted = {}  # files of the repository that a page links: shown as pages of their own
        self.missing = []
        self.hidden = []  # pages without a picture that everybody sees
        self.made = {}  # page: the texts on it that this program wrote itself
        self.said = {}  # page: what its cells say
        self.figures = {}  # page: the figures within its sentences

    def write(self, name, text):
        """Only what changed, so that Sphinx renders only that."""
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)

    def drawn(self, page, picture):
        return self.outputs.picture(page, picture)

    def cell_words(self, page):
        """The function that says a cell's title, claim or words in a picture in this language."""
        return self.locale.cell_words(page) if self.locale else str

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
        text = pages.outside_code(text, lambda t: re.sub(
            r"\]\(([^)\s]+)\)", lambda m: "](" + self.link(m.group(1), file) + ")", t))
        return re.sub(r"(?m)^!\[[^\]]*\]\([^)]*\)$", lambda m: pages.framed(m.group(0)), text)

    # ---------------------------------------------------------------- pages

    def read(self):
        """The parts of all notebooks, by file."""
        command = [self.build / "bin/flash-pages", ROOT, *(file for _, file, _ in self.notebooks)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Wrong(done.stderr.strip())
        return {page["file"]: page["parts"] for page in map(json.loads, done.stdout.splitlines())}

    def words(self, file):
        """What ./flash notebook wants to hear: the number, and the name where the phase has several pages."""
        number = next(n for n, f, _ in self.notebooks if f == file)
        alone = sum(n == number for n, _, _ in self.notebooks) == 1
        return number if alone else f"{number} {pathlib.Path(file).stem}"

    def glossary(self):
        """The glossary's terms, longest first."""
        text = (HERE / "glossary.md").read_text()
        body = text[text.index("{glossary}"):text.rindex("```")]
        return sorted((line for line in body.splitlines()[1:] if line and line[0] not in " `"), key=len, reverse=True)

    def write_sources(self):
        terms = self.glossary()
        # A translation's terms are linked in its messages: write_catalogs.
        linked = pages.with_terms if self.language == "en" else lambda text, _: text
        self.made = {name_of(f): set() for f in self.files}
        parts_of = self.read()
        for _, file, _ in self.notebooks:
            name, outputs = name_of(file), self.outputs.of(name_of(file))
            page = pages.Page(self, file, parts_of[file], outputs, self.words(file))
            self.made[name], self.said[name] = page.made, page.said
            self.missing += page.missing
            self.write_page(name, linked(page.text, terms))
            notebook = pages.notebook_json(page.parts, lambda picture: self.drawn(name, picture))
            self.write(f"extra/{name}.ipynb", notebook)
            if not page.seen:
                self.hidden.append(f"{file}: every picture is folded into an answer; expected one that sets the scene")
        for file in self.files:
            if not file.startswith("phases/"):
                text = self.with_links(self.with_figures((ROOT / file).read_text(), name_of(file)), file)
                text = re.sub(r"(?<=<summary>)[^<]+", lambda m: self.say(m.group(0)), text)
                own = file in ("docs/book/glossary.md", FRONT)
                self.write_page(name_of(file), (text if own else linked(text, terms)) +
                                (self.contents() if file == FRONT else ""))
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
        website.prepare(self.source)
        self.write("extra/player-runs.html", self.player())
        if self.locale:
            self.write_catalogs()
        if self.missing:
            raise Wrong("lost between source and page:\n" + "\n".join(self.missing))

    def player(self):
        """The page that plays runs of the phases (sim/report/player.html), with the runs in it."""
        template = (ROOT / "sim/report/player.html").read_text()
        return template.replace("[/* recordings */]", self.outputs.player())

    def with_figures(self, text, page):
        """A page's text with its figures, which a message recognises (translation.py) by the marks around them."""
        if self.language == "en":
            return pages.without_marks(text)
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
        """What is to be translated: page to messages. README.md is one of the pages, what a page's cells say too."""
        whole = translation.messages_of(self.source, self.made)
        cells = {page + ".cells": translation.cell_messages(texts) for page, texts in self.said.items()}
        return {"README": translation.Readme().messages(), **whole, **{p: m for p, m in cells.items() if m}}

    def contents(self):
        def tree(caption, names):
            return f'\n```{{toctree}}\n:hidden:\n:caption: "{caption}"\n\n' + "\n".join(names) + "\n```\n"
        text, first = "", "00"
        for caption, last, closing in PARTS:
            own = [name_of(f) for n, f, _ in self.notebooks if first < n <= last]
            text += tree(caption, own + ([name_of(closing)] if closing else []))
            first = last
        return text + tree("Beside the pages", [name_of(f) for f in BESIDE]) + \
            tree("Reference", [name_of(f) for f in REFERENCE])


def at_once(do, items):
    """What do(item) gives for all items, as many at a time as there are cores; the first error ends it."""
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    try:
        return list(pool.map(do, items))
    finally:
        pool.shutdown(cancel_futures=True)


def main():
    options = argparse.ArgumentParser(description="Writes the book from its pages and what is kept of their cells.")
    options.add_argument("build", type=pathlib.Path, help="the build folder, where `pages` lists the notebooks")
    options.add_argument("out", type=pathlib.Path, help="where the site goes")
    options.add_argument("--run", nargs="?", const="all", metavar="NN", help="run the cells of this phase's "
                         "pages, or of all, and show what they print now")
    options.add_argument("--check", action="store_true", help="run all: they print and draw what is kept; links, "
                         "nothing from outside, complete translations, no text cut off; no warning")
    options.add_argument("--golden", nargs="?", const="all", metavar="NN", help="run, and keep what they print: "
                         "docs/book/golden")
    options.add_argument("--zip", action="store_true", help="the site as one file, too")
    options.add_argument("--messages", nargs="*", metavar="PAGE", help="bring the translations' files up to date with "
                         "the English text, and begin that of PAGE")
    chosen = options.parse_args()
    for each in (kept, pages, translation):
        each.try_myself()
    try:
        write(chosen, chosen.build.resolve(), chosen.out.resolve())
    except (Wrong, translation.Wrong) as error:
        sys.exit(f"book: {error}")


def write(chosen, build, out):
    outputs = kept.Outputs(out.parent / (out.name + ".run"))
    book = Book(build, out, outputs)
    number = "all" if chosen.check else chosen.golden or chosen.run

    def run(notebook):
        phase, file, program = notebook
        if number in ("all", phase):
            print(f"running {file}", flush=True)
            outputs.run(name_of(file), build / program)
    at_once(run, book.notebooks)
    if number == "all":
        outputs.run_player(build / "bin/flash-recordings")
    if chosen.golden:
        outputs.keep()
        return
    if chosen.check:
        stale = outputs.compare([name_of(file) for _, file, _ in book.notebooks])
        if stale:
            raise Wrong("a page no longer prints or draws what it did (./flash book --golden renews what is kept):\n" +
                        "\n".join(stale))
    # English can be read while the others are still being written.
    book.write_sources()
    if chosen.check and book.hidden:
        raise Wrong("\n".join(book.hidden))
    if chosen.messages is None and not chosen.check:
        website.render(book, strict=False)
        print(f"{len(book.files)} pages; open file://{book.site}/index.html", flush=True)
    translated = [Book(build, out, outputs, language) for language in LOCALES if language != "en"]
    for other in translated:
        other.write_sources()
        if chosen.messages is not None:
            translation.renew(other.locale, other.messages(), chosen.messages)
            return
        if chosen.check:
            translation.check(other.locale, other.messages())
    if not chosen.check:
        for each in translated:
            website.render(each, strict=False)
            print(f"{LOCALES[each.language][1]}: file://{each.site}/index.html", flush=True)
    else:
        books = [book, *translated]
        at_once(lambda each: website.render(each, strict=True), books)
        website.check(book, LOCALES)
        names = [name_of(file) for file in book.files]
        complaints = at_once(lambda each: layout.complaints(each.site, names), books) if layout.browser() else []
        unreadable = [f"{each.language}: {line}" for each, lines in zip(books, complaints) for line in lines]
        if unreadable:
            raise Wrong("there is text that nobody can read:\n" + "\n".join(unreadable))
        if not layout.browser():
            print("not looked at: whether text is cut off; that takes a browser (apt-get install chromium)")
        print(f"checked: {len(book.files)} pages, each in {len(LOCALES)} languages")
    if chosen.zip:
        file = out.parent / "flashphases-book.zip"
        website.pack(out, file)
        print(f"{file}: {file.stat().st_size / 1e6:.1f} MB; unpack it anywhere and open flashphases/index.html")


main()
