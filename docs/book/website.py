# website.py: Sphinx turns the book's Markdown into a site. What is wrong with the theme is mended, what is wrong with
# the site is said: every link leads somewhere, nothing is loaded from outside. build.py imports it.
import html
import os
import pathlib
import re
import shutil
import subprocess
import zipfile

from kept import Wrong
from pages import name_of

HERE = pathlib.Path(__file__).resolve().parent
KATEX = pathlib.Path("/usr/share/javascript/katex")


def prepare(source):
    """What Sphinx needs beside the pages: settings, style, search, KaTeX."""
    copies = [(HERE / "conf.py", "conf.py")] + [(p, f"static/{p.name}") for p in (HERE / "static").iterdir()]
    copies += [(KATEX / f, f"static/katex/{f}") for f in ("katex.min.css", "katex.js", "contrib/auto-render.js")]
    copies += [(p, f"static/katex/fonts/{p.name}") for p in (KATEX / "fonts").glob("*.woff2")]
    for file, name in copies:
        to = source / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_bytes() != file.read_bytes():
            shutil.copyfile(file, to)


def render(book, strict):
    command = ["sphinx-build", "-q", "-b", "html", "-j", "auto", *(["-W", "--keep-going", "-a"] if strict else []),
               "-D", f"language={book.language}", "-D", "html_title=" + book.say("FlashAttention, phase by phase"),
               "-D", "copyright=" + book.say("the authors of FlashPhases; prose CC BY 4.0, code MIT"),
               "-d", book.source / ".doctrees", book.source, book.site]
    if subprocess.run(command, env={**os.environ, "PYTHONNOUSERSITE": "1"}).returncode != 0:
        raise Wrong("Sphinx found fault with the book; its messages are above")
    for folder, place in (("extra", ""), ("static", "_static")):  # Sphinx copies them only where a page changed, too
        shutil.copytree(book.source / folder, book.site / place, dirs_exist_ok=True)
    mend_theme(book.site)


def mend_theme(site):
    """Debian's furo comes unbundled: a style of another package, a script that a browser takes from a server only,
    and no colours for a system that is set to dark. Upstream's has all three in its two files."""
    css, js = site / "_static/styles/furo.css", site / "_static/scripts/furo.js"
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
    search = site / "_static/searchtools.js"
    search.write_text(re.sub(r"`(Search finished, [^`]*)`\s*\)", r'"\1").replace("${resultCount}", resultCount)',
                             search.read_text()))


def pack(site, file):
    """The whole site in one file to carry away."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(site.rglob("*")):
            if path.is_file() and path.name != ".buildinfo":
                packed.write(path, pathlib.Path("flashphases") / path.relative_to(site))


def check(book, languages):
    """Every link leads somewhere in the site, and nothing is loaded from outside."""
    wrong, ids = [], {}
    pages = sorted(book.site.rglob("*.html"))
    texts = {p: p.read_text() for p in pages}
    for page, text in texts.items():
        ids[page.resolve()] = set(re.findall(r'\bid="([^"]+)"', text))
    for page, text in texts.items():
        where = page.relative_to(book.site)
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
    for style in book.site.rglob("*.css"):
        for target in re.findall(r"url\(\s*[\"']?([^)\"']+)", style.read_text()):
            if re.match(r"(?:https?:)?/", target):
                wrong.append(f"{style.relative_to(book.site)}: loads {target}")
    for script in book.site.rglob("*.js"):
        if re.search(r"^import .* from ", script.read_text(), re.M):
            wrong.append(f"{script.relative_to(book.site)}: imports, which a page on disk may not")
    for _, file, _ in book.notebooks:
        text = texts.get(book.site / (name_of(file) + ".html"), "")
        for what, sign in (("a table of verdicts", "✓ holds"), ("what it needs", "minutes to read"),
                           ("a link to its translation", f'href="zh/{name_of(file)}.html"')):
            if sign not in text:
                wrong.append(f"{name_of(file)}.html: lacks {what}")
    if len(pages) < len(languages) * len(book.files):
        wrong.append(f"{len(pages)} pages for {len(book.files)} files")
    index = (book.site / "zh/searchindex.js").read_text()
    if not re.search(r'(?:掩码|\\u63a9\\u7801)"?:', index):
        wrong.append("zh/searchindex.js: 掩码 (mask) cannot be found")
    if wrong:
        raise Wrong("the site is not whole:\n" + "\n".join(wrong))
