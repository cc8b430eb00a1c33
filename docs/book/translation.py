# translation.py: the book in other languages. The text is English; a translation is one .po file per page, in Sphinx's
# own format: docs/book/locale/LANGUAGE/LC_MESSAGES/PAGE.po, complete for the pages that its list complete.txt names.
# build.py imports it. ./flash book --messages [PAGE…] renews the files; ./flash book --check says what is missing.
import contextlib
import io
import itertools
import os
import pathlib
import re
import subprocess
import tempfile

from babel.messages import Catalog
from babel.messages.pofile import escape, read_po, unescape
from markdown_it import MarkdownIt

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HEADER = 'msgid ""\nmsgstr ""\n"Language: {}\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Content-Transfer-' \
         'Encoding: 8bit\\n"\n'
JOINER = "\u2060"  # invisible; around a figure on a page
FIGURE = re.compile(r"<!-- range\s[^>]*-->(.*?)<!-- end -->", re.S)
FIGURE_NAME = re.compile(r"⟦(\d+)⟧")
CELL_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?!\w)")
TABLES = re.compile(r"<!-- results\s.*?<!-- end of results -->", re.S)


class Wrong(Exception):
    """What the reader of the terminal should know."""


# What build.py itself writes on a page, in the languages that are not English.
WORDS = {"zh_CN": {
    "minutes to read": "分钟读完",
    "needs: nothing": "需要：无",
    ", the simulator runs the kernels": "，kernel 由模拟器运行",
    "run it:": "运行：",
    "notebook": "notebook 文件",
    "code of this cell": "本单元的代码",
    "preparations": "准备工作",
    "unchanged lines": "行未改动",
    " of {} lines": "，共 {} 行",
    "Predict, before you look:": "先预测，再往下看：",
    "What it prints, and the answer": "输出与答案",
    "Answer": "答案",
    "Exercises that grade themselves": "会自动评判的练习",
    "cell": "单元",
    "claim": "断言",
    "verdict": "结论",
    "✓ holds": "✓\u00a0成\u2060立",  # on one line: Chinese may break anywhere
    "Predicted, counted, measured": "预测、计数、实测",
    "Checked where the cells ran, on the simulator or on the CPU. `./flash book --check` runs them again, and a claim "
    "that no longer holds stops it.": "以下断言在单元运行时由模拟器或 CPU 逐条检验。`./flash book --check` 会重新运行所有单元，"
                                      "只要有一条断言不再成立就会报错。",
    "in numbers": "具体数字",
    "Answers": "答案",
    "The table": "表格",
    "The backward pass": "反向传播",
    "The tables": "两张表格",
    "This page is not translated yet.": "本页尚未译完，未译的段落保留英文原文。",
    " to ": " 到 ",
    "FlashAttention, phase by phase": "FlashAttention，逐阶段详解",
    "the authors of FlashPhases; prose CC BY 4.0, code MIT": "FlashPhases 的作者；文字 CC BY 4.0，代码 MIT",
}}

# What the theme writes and Sphinx's own catalog lacks.
THEME = {"zh_CN": {
    "On this page": "本页内容",
    "Back to top": "回到顶部",
    "Next": "下一页",
    "Previous": "上一页",
    "Home": "首页",
    "Copyright &#169; %(copyright)s": "版权所有 &#169; %(copyright)s",
    "Made with ": "网页主题：",
    "Please activate JavaScript to enable the search functionality.": "请启用 JavaScript 以使用搜索功能。",
}}

# Words that begin as a term does and are none.
OTHER_WORDS = {"zh_CN": ["机器码"]}


def words(language):
    """The function that says a fixed text of build.py's, or a <summary> of a page's, in a language."""
    def say(text):
        if text not in WORDS[language]:
            raise Wrong(f"'{text}' has no translation to {language}; add one to WORDS in docs/book/translation.py")
        return WORDS[language][text]
    return str if language == "en" else say


# -------------------------------------------------------------------- catalogs

class Locale:
    """The .po files of a language."""

    def __init__(self, language, folder=None):
        self.language = language
        self.folder = folder or HERE / "locale" / language
        listed = self.folder / "complete.txt"
        self.complete = listed.read_text().split() if listed.exists() else []

    def path(self, page):
        return self.folder / "LC_MESSAGES" / (page + ".po")

    def catalog(self, page):
        """The page's messages as they are kept; empty for a page that nobody has begun."""
        if not self.path(page).exists():
            return Catalog(locale=self.language)
        with self.path(page).open("rb") as file:
            catalog = read_po(file, locale=self.language)
        for message in catalog:  # Babel takes the earlier text of a fuzzy message for a comment
            message.previous_id = [unescape(c[len("| msgid "):]) for c in message.user_comments if c[:1] == "|"]
        return catalog

    def translations(self, page):
        """English to translation, of what counts: neither empty nor fuzzy."""
        return {m.id: m.string for m in self.catalog(page) if m.id and m.string and not m.fuzzy}

    def terms(self, english):
        """The glossary's terms by what they are called here: 分块 for a term translated as 分块（tile）. One Chinese
        character says too little to be a link by itself."""
        done = self.translations("glossary")
        named = {done.get(term, term).partition("（")[0].lower(): term for term in english}
        return {**{name: term for name, term in named.items() if len(name) > 1},
                **dict.fromkeys(OTHER_WORDS[self.language])}

    def cell_words(self, page):
        """The function that says what a page's cells say: titles, claims, words in pictures. What has no translation
        yet stays English."""
        done = self.translations(page + ".cells")

        def say(text):
            named, numbers = with_numbers_named(text)
            return FIGURE_NAME.sub(lambda m: numbers[int(m.group(1)) - 1], done.get(named, named))
        return say

    def localized(self, page, figures, terms, plain):
        """The page's file for Sphinx: figures put in, and the first mention of each term linked, except in headings and
        tables (plain)."""
        fresh = Catalog(locale=self.language)
        done = self.translations(page)
        for said in re.findall(r"\{term\}`(?:[^`<]*<)?([^`>]+)>?`", " ".join(done.values())):
            terms = {name: term if term and term.lower() != said.lower() else None  # linked by hand
                     for name, term in terms.items()}
        for text, said in done.items():
            if text not in plain:
                said, terms = with_terms(said, terms)
            marked = with_figures_marked(said, figures, words(self.language))
            fresh.add(with_figures_marked(text, figures), marked)
        return po_text(self.language, fresh)

    def renew(self, page, messages):
        """Brings a page's file up to date with the English text. What changed a little is kept, marked fuzzy, except
        where only its numbers changed; what another page has translated word for word is taken from there."""
        template = Catalog(locale=self.language)
        for message in messages:
            template.add(message)
        catalog, done = self.catalog(page), self.translations(page)
        earlier = {m.id: m.previous_id for m in catalog if m.fuzzy}
        catalog.update(template)
        known = {}
        for path in sorted((self.folder / "LC_MESSAGES").glob("*.po")):
            known.update(self.translations(path.stem))
        for message in catalog:
            if message.id in known and (message.fuzzy or not message.string):
                message.string, message.previous_id = known[message.id], []
                message.flags.discard("fuzzy")
            elif message.fuzzy and message.previous_id and message.previous_id[0] in done:
                renewed = with_new_numbers(message.previous_id[0], message.id, message.string)
                if renewed:
                    message.string, message.previous_id = renewed, []
                    message.flags.discard("fuzzy")
        fresh = Catalog(locale=self.language)
        for message in messages:  # in the page's order
            found = catalog.get(message)
            fresh.add(message, found.string, flags=found.flags,
                      previous_id=found.previous_id or earlier.get(message, []))
        self.path(page).parent.mkdir(parents=True, exist_ok=True)
        self.path(page).write_text(po_text(self.language, fresh))


def po_text(language, catalog):
    """A .po file: no dates, line numbers or line breaks, which would change with every edit of the English text."""
    entries = [HEADER.format(language)]
    for message in catalog:
        if message.id:
            previous = f"#, fuzzy\n#| msgid {escape(message.previous_id[0])}\n" if message.previous_id else "#, fuzzy\n"
            entries.append((previous if message.fuzzy else "") +
                           f"msgid {escape(message.id)}\nmsgstr {escape(message.string or '')}\n")
    return "\n".join(entries)


def theme(language):
    """The file by which Sphinx finds the theme's words."""
    catalog = Catalog(locale=language)
    for text, said in THEME[language].items():
        catalog.add(text, said)
    return po_text(language, catalog)


def messages_of(source, made):
    """What each page of a folder of Sphinx's has to translate: page to messages, in order. `made` (page to texts) is
    what build.py wrote itself; texts without a word in them are nobody's to translate either."""
    out = source / "messages"
    command = ["sphinx-build", "-Q", "-b", "gettext", "-D", "gettext_compact=0", "-D", "gettext_additional_targets=",
               "-d", source / ".doctrees-messages", source, out]
    if subprocess.run(command, env={**os.environ, "PYTHONNOUSERSITE": "1"}).returncode != 0:
        raise Wrong("Sphinx could not read the pages' messages: " + " ".join(map(str, command)))
    pages = {}
    for page in made:
        with (out / (page + ".pot")).open("rb") as file:
            texts = [m.id for m in read_po(file) if m.id and m.id not in made[page] and has_words(m.id)]
        pages[page] = [with_figure_names(text, numbers) for numbers in [itertools.count(1)] for text in texts]
    return pages


def has_words(text):
    plain = re.sub(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)", "", text)
    return re.search(r"[A-Za-z]{3}|\b(?:as|by|if|in|is|no|of|or|to)\b", plain) is not None


def in_tables(text, whole=False):
    """The texts of the tables that tables.py writes from results, which stay as they are, and what is said around
    them; of a page that is written as a whole the cells alone."""
    found = cells(text) if whole else set()
    for table in TABLES.findall(text):
        found |= cells(table)
        for paragraph in re.split(r"\n\n", re.sub(r"^\|.*$", "", table, flags=re.M)):
            found.add(" ".join(paragraph.split()))
    return found


def cells(text):
    return {cell.strip() for row in re.findall(r"^\|.*", text, re.M) for cell in row.split("|")}


def with_figures_named(text):
    """A figure within a sentence, which tables.py renews, is ⟦1⟧, ⟦2⟧ … in a message, so that a new measurement
    makes no translation stale. The text, and the figures."""
    figures = [" ".join(f.split()) for f in FIGURE.findall(text)]
    numbers = itertools.count(1)
    return FIGURE.sub(lambda _: f"⟦{next(numbers)}⟧", text), figures


def with_numbers_named(text):
    """What a cell says, with ⟦1⟧, ⟦2⟧ … for its numbers, so that another count makes no translation stale; and them."""
    numbers = CELL_NUMBER.findall(text)
    names = itertools.count(1)
    return CELL_NUMBER.sub(lambda _: f"⟦{next(names)}⟧", text), numbers


def cell_messages(texts):
    """What of that is to be translated, each once."""
    return [m for m in dict.fromkeys(with_numbers_named(text)[0] for text in texts) if has_words(m)]


def with_figures(text, figures, say=str, mark=""):
    """The figures in place of their names; a name that the page has no figure for, in a message of old, stays."""
    def figure(match):
        number = int(match.group(1))
        return mark + figures[number - 1].replace(" to ", say(" to ")) + mark if number <= len(figures) else match[0]
    return FIGURE_NAME.sub(figure, text)


def with_figures_marked(text, figures, say=str):
    """The same with invisible marks around each, by which with_figure_names finds them again."""
    return with_figures(text, figures, say, JOINER)


def with_figure_names(text, numbers):
    return re.sub(f"{JOINER}[^{JOINER}]*{JOINER}", lambda _: f"⟦{next(numbers)}⟧", text)


def with_terms(text, terms):
    """Links the first mention of each term (name here: English name). The text, and the terms, None for those that are
    linked: their names still count, since Chinese has no spaces that would tell 线程 from a part of 线程块."""
    left = dict(terms)
    names = "|".join(re.escape(name) for name in sorted(left, key=len, reverse=True))

    def link(match):
        name = match.group(0)
        term, left[name.lower()] = left[name.lower()], None
        return f"{{term}}`{name} <{term}>`" if term else name
    # Not within *emphasis* either: Markdown finds no stars between a Chinese character and a link.
    pieces = re.split(r"(\{term\}`[^`]*`|`[^`]*`|\$[^$]+\$|!?\[[^\]]*\]\([^)]*\)|\*+[^*]+\*+)", text)
    if names:
        pieces[::2] = [re.sub(rf"(?<![A-Za-z0-9_-])(?:{names})(?![A-Za-z0-9_-])", link, p, flags=re.I)
                       for p in pieces[::2]]
    return "".join(pieces), left


NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
MEASURED = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{7}\b|" + NUMBER.pattern)  # a commit, a number


def with_new_numbers(old, new, said):
    """The translation of `old` with the numbers of `new`; None where more than numbers and commits differ."""
    if MEASURED.sub("#", old) != MEASURED.sub("#", new):
        return None
    pairs = set(zip(MEASURED.findall(old), MEASURED.findall(new)))
    if len(pairs) != len({before for before, _ in pairs}):
        return None  # one number became two different ones: which is which, a translator must say
    return MEASURED.sub(lambda m: dict(pairs).get(m.group(0), m.group(0)), said)


# -------------------------------------------------------------------- checks

MARKDOWN = MarkdownIt()


def markers(text):
    """What a translation must have in common with its text: kind and what of code, links, terms, formulas, numbers."""
    found, plain, target = [], "", None
    text = re.sub(r"\$[^$`]+\$", lambda m: found.append(("formula", m.group(0))) or " ", text)
    text = re.sub(r"⟦\d+⟧", lambda m: found.append(("figure", m.group(0))) or " ", text)
    for token in MARKDOWN.parseInline(text)[0].children:
        if token.type == "code_inline":
            role = re.search(r"\{(\w+)\}$", plain)
            if role:
                target = re.search(r"<([^>]+)>$", token.content)
                found.append((role.group(1), (target.group(1) if target else token.content).lower()))
                plain = plain[:role.start()]
            else:
                found.append(("code", token.content))
            plain += " "
        elif token.type == "link_open":
            found.append(("link", token.attrs["href"]))
        elif token.type == "image":
            found.append(("image", token.attrs["src"]))
        elif token.type in ("strong_open", "html_inline"):
            found.append((token.type, token.content))
        elif token.type == "text":
            plain += token.content
    found += [("number", n) for n in NUMBER.findall(plain)]
    found += [("power", n) for n in re.findall("[⁻⁰¹²³⁴-⁹]+", plain)]
    found += [("stray", mark) for mark in re.findall(r"[*`]", plain)]
    return found


def unlike(text, translation):
    """What is in one and not in the other, in words. How often it is said does not matter, except for links."""
    complaints = []
    ours, theirs = markers(text), markers(translation)
    for kind in sorted({k for k, _ in ours + theirs}):
        a, b = [w for k, w in ours if k == kind], [w for k, w in theirs if k == kind]
        if kind not in ("link", "image", "strong_open", "term", "stray", "html_inline"):
            a, b = set(a), set(b)
        if sorted(a) != sorted(b):
            lost, new = [w for w in a if w not in b], [w for w in b if w not in a]
            complaints.append(f"{kind}: " + " ".join([f"lacks {w}" for w in lost] + [f"{w} is new" for w in new] or
                                                     [f"{len(a)} there, {len(b)} here"]))
    return complaints


HAN = "\u3400-\u9fff"
STYLE = [(rf"[{HAN}][A-Za-z0-9]|[A-Za-z0-9][{HAN}]", "no space between Chinese and Latin letters or digits"),
         (rf"[{HAN}][,;:?!]|[,;:?!][{HAN}]|[{HAN}]\.(?!\.)|\([^()]*[{HAN}][^()]*\)",
          "half-width punctuation in Chinese"),
         (r" [，。；：？！（）、》《]|[，。；：？！（）、》《] ", "a space beside full-width punctuation"),
         (rf"[{HAN}] +[{HAN}]", "a space within Chinese")]


def style(translation):
    """Rules of Chinese typesetting that this translation keeps (docs/book/locale/zh_CN/terms.md)."""
    plain = re.sub(r"\{term\}`([^`<]*?) *(?:<[^`]*)?`", r"\1", translation)
    plain = re.sub(r"`[^`]*`|\$[^$]+\$", "x", plain)
    plain = re.sub(r"\]\([^)]*\)|!?\[|[\]*]", "", plain)
    # A space behind what is bold ends the bold text for Markdown; it is the one exception.
    plain = re.sub(r"(?<=[。：？！，]) ", "", plain) if "**" in translation else plain
    return [f"{what}: …{plain[max(0, m.start() - 6):m.end() + 6]}…" for rule, what in STYLE
            for m in [re.search(rule, plain)] if m]


def state(locale, page, messages):
    """Of one page: what lacks a translation, what is fuzzy, and which translations are wrong, as lines to print."""
    done = locale.translations(page)
    fuzzy = {m.id for m in locale.catalog(page) if m.fuzzy}
    missing = [m for m in messages if m not in done and m not in fuzzy]
    doubtful = [m for m in messages if m in fuzzy]
    wrong = [f"{page}.po: {short(m)}\n    {c}" for m in messages if m in done
             for c in unlike(m, done[m]) + style(done[m])]
    return missing, doubtful, wrong


def short(text):
    return text if len(text) <= 70 else text[:67] + "…"


def report(locale, pages):
    """Prints how far each page is, and returns what must not be: a page listed as complete that is not, a translation
    that lost a marker."""
    offences, not_begun, finished, count = [], [], 0, 0
    for page in locale.complete:
        if page not in pages:
            offences.append(f"complete.txt names {page}, which is no page")
    for page, messages in pages.items():
        missing, doubtful, wrong = state(locale, page, messages)
        offences += wrong
        if page in locale.complete:
            offences += [f"{page}.po: is listed as complete, but {what}: {short(m)}"
                         for what, them in (("not translated", missing), ("fuzzy", doubtful)) for m in them]
        left = len(missing) + len(doubtful)
        if left == 0 and page in locale.complete:
            finished, count = finished + 1, count + len(messages)
        elif left == len(messages) and not doubtful:
            not_begun.append(f"{page} ({left})")
        else:
            print(f"{locale.language}: {page}: {len(messages) - left} of {len(messages)} messages translated, "
                  f"{len(missing)} missing, {len(doubtful)} fuzzy")
    print(f"{locale.language}: {finished} of {len(pages)} pages complete ({count} messages)" +
          (f"; not begun: {', '.join(not_begun)}" if not_begun else ""))
    return offences


def renew(locale, pages, begin):
    """Brings every file that has been begun up to date with the English text, and begins those of some pages."""
    for page in begin:
        if page not in pages:
            raise Wrong(f"page '{page}' is unknown; expected one of: {' '.join(pages)}")
    for page, messages in pages.items():
        if page in begin or locale.path(page).exists():
            locale.renew(page, messages)
    for path in (locale.folder / "LC_MESSAGES").glob("*.po"):
        if path.stem not in pages:
            print(f"{path.relative_to(ROOT)} belongs to no page")
    readme = Readme()
    if locale.path("README").exists():
        readme.path(locale).write_text(readme.translated(locale))
    report(locale, pages)


def check(locale, pages):
    """Refuses what report() finds, and a translated README that is not what README.md and its messages give."""
    offences = report(locale, pages)
    readme = Readme()
    if not readme.path(locale).exists() or readme.path(locale).read_text() != readme.translated(locale):
        offences.append(f"{readme.path(locale).name} is stale")
    if offences:
        raise Wrong("the translation is not whole (./flash book --messages renews its files):\n" + "\n".join(offences))


# -------------------------------------------------------------------- README

def wrapped(text, width=118):
    """Lines broken at spaces; in Chinese, where there are few, also behind punctuation."""
    lines = []
    while len(text) > width:
        cut = text.rfind(" ", 0, width)
        if cut < width // 2:
            cut = max(cut, *(text.rfind(mark, 0, width) + 1 for mark in "。；：，"))
        if cut <= 0:
            break
        lines, text = [*lines, text[:cut].rstrip()], text[cut:].lstrip()
    return "\n".join([*lines, text])


class Readme:
    """README.md as messages and back: README.LANGUAGE.md is written from README.po, never by hand."""
    NAMES = {"zh_CN": "README.zh-CN.md"}
    SWITCH = "[简体中文](README.zh-CN.md)", "[English](README.md)"

    def __init__(self):
        self.text, self.figures = with_figures_named((ROOT / "README.md").read_text())

    def path(self, locale):
        return ROOT / self.NAMES[locale.language]

    def messages(self):
        found = []
        self.changed(lambda text: found.append(text) or text)
        return [m for m in dict.fromkeys(found) if has_words(m)]

    def changed(self, translate):
        """The text, with each heading, paragraph, cell and comment of a listing put through a function."""
        def block(text):
            if text in self.SWITCH:
                return self.SWITCH[1]
            if text.startswith("<!-- results"):
                return text
            if text.startswith("#"):
                marks, _, title = text.partition(" ")
                return f"{marks} {translate(title)}"
            lines = text.split("\n")
            if text.startswith("    "):
                return "\n".join(re.sub(r"(?<=  # ).*", lambda m: translate(m.group(0)), line) for line in lines)
            if text.startswith("|"):
                return "\n".join(re.sub(r"(?<=\| )[^|]+(?= \|)", lambda m: translate(m.group(0)), line)
                                 for line in lines)
            if text.startswith("<!--"):
                return text
            return wrapped(translate(" ".join(text.split())))
        parts = re.split(r"(<!-- results\s.*?<!-- end of results -->|\n\n+)", self.text.rstrip("\n"), flags=re.S)
        return "".join(p if p == "" or p.isspace() else block(p) for p in parts) + "\n"

    def translated(self, locale):
        done, say = locale.translations("README"), words(locale.language)
        # Figures first, since they are longer than their names: lines are broken behind that.
        return with_figures(self.changed(lambda text: with_figures(done.get(text, text), self.figures, say)),
                            self.figures, say)


# -------------------------------------------------------------------- tests

def try_myself():
    """Each rule, on a translation that breaks it."""
    text = "Take `load` of [page 3](a.md#b), $N^2$ and {term}`tiles <tile>`: **12.5 %**, ⟦1⟧, 2⁻²⁴."
    good = "对[第 3 页](a.md#b)用 `load`，即 $N^2$ 与{term}`分块 <tile>`：**12.5 %**，⟦1⟧，2⁻²⁴。"
    assert not unlike(text, good) and not style(good), (unlike(text, good), style(good))
    for wrong in ("`load`", "(a.md#b)", "$N^2$", "{term}`分块 <tile>`", "12.5", "⟦1⟧", "⁻²⁴", "**"):
        assert unlike(text, good.replace(wrong, "")), wrong
    assert unlike("a **b.** c", "甲**乙。**丙")  # Markdown would print the stars
    assert not unlike("`$A` or `$B`", "`$A` 或 `$B`")  # what lies between two dollars of code is no formula
    for bad in ("用load", "分块,然后", "分块 (一块)", "分块， 然后", "分 块", "分块."):
        assert style(bad), bad
    assert in_tables("x\n\n| a |\n\ny", True) == {"", "a"} and not in_tables("x\n\n| a |\n\ny")
    assert in_tables("x\n<!-- results a.json -->\n\n| a b | 1 |\n\nc\nd\n\n<!-- end of results -->\n") >= {"a b", "c d"}
    marked, figures = with_figures_named("at <!-- range kernel=a\nb -->1 to\n2<!-- end --> times")
    assert marked == "at ⟦1⟧ times" and with_figures(marked, figures, words("zh_CN")) == "at 1 到 2 times"

    assert with_numbers_named("row 3: 1,024 of 0.5 fp64") == ("row ⟦1⟧: ⟦2⟧ of ⟦3⟧ fp64", ["3", "1,024", "0.5"])
    assert cell_messages(["row 3 holds", "row 4 holds", "12"]) == ["row ⟦1⟧ holds"]

    assert with_new_numbers("of 12, 3f4e5a6", "of 14, 00aa1bb", "共 12 个，3f4e5a6") == "共 14 个，00aa1bb"
    assert with_new_numbers("2 of 2", "2 of 3", "2 个") is None and with_new_numbers("2 a", "2 b", "2 个") is None

    with tempfile.TemporaryDirectory() as folder:
        locale = Locale("zh_CN", pathlib.Path(folder))
        locale.renew("p", ["a text of 12 words", "another text"])
        assert locale.translations("p") == {}
        first = locale.catalog("p")
        first.get("a text of 12 words").string, first.get("another text").string = "一段 12 个词的文字", "又一段"
        locale.path("p").write_text(po_text("zh_CN", first))
        locale.renew("p", ["a text of 13 words", "another text, changed", "a third one entirely"])
        locale.renew("p", ["a text of 13 words", "another text, changed", "a third one entirely"])
        assert locale.translations("p") == {"a text of 13 words": "一段 13 个词的文字"}
        changed = locale.catalog("p").get("another text, changed")
        assert (changed.fuzzy, changed.string, changed.previous_id) == (True, "又一段", ["another text"])
        locale.renew("q", ["a text of 13 words"])
        assert len(locale.translations("q")) == 1

    class Kept(Locale):
        def __init__(self, catalog, complete):
            self.language, self.kept, self.complete = "zh_CN", catalog, complete

        def catalog(self, page):
            return self.kept

    catalog = Catalog(locale="zh_CN")
    catalog.add("one", "一")
    catalog.add("two", "二", flags=["fuzzy"])
    catalog.add("three `3`", "三")
    assert [len(part) for part in state(Kept(catalog, []), "p", ["one", "two", "three `3`", "four"])] == [1, 1, 1]
    for messages, count in ((["one"], 0), (["one", "two"], 1), (["one", "four"], 1), (["three `3`"], 1)):
        with contextlib.redirect_stdout(io.StringIO()):
            assert len(report(Kept(catalog, ["p"]), {"p": messages})) == count, messages
    assert with_terms("`分块` 与分块、分块", {"分块": "tile"}) == ("`分块` 与{term}`分块 <tile>`、分块", {"分块": None})
    assert with_terms("线程块、线程块、机器码", {"线程": "thread", "线程块": "block", "机器码": None, "机器": "machine"}) == (
        "{term}`线程块 <block>`、线程块、机器码", {"线程": "thread", "线程块": None, "机器码": None, "机器": "machine"})
    assert with_terms("*分块*是", {"分块": "tile"}) == ("*分块*是", {"分块": "tile"})
    assert with_figure_names(with_figures_marked("⟦1⟧ x ⟦2⟧", ["a", "b"]), itertools.count(1)) == "⟦1⟧ x ⟦2⟧"
