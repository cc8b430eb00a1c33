# conf.py: Sphinx's settings of the book; build.py copies it beside the pages that it writes.
# Sphinx 5.3, myst-parser 0.18 and furo as Debian 12 has them; mathematics by KaTeX, whose files the site brings along.
# ./flash book
import re

from docutils import nodes
from sphinx.search.zh import SearchChinese

project = "FlashPhases"
html_title = "FlashAttention, phase by phase"
copyright = "the authors of FlashPhases; prose CC BY 4.0, code MIT"
language = "en"  # build.py says another one for a translation
gettext_compact = False  # one file of messages per page
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["extra", "runs", "pictures", "static", "locales", "messages"]
highlight_language = "text"
html_theme = "furo"
html_static_path = ["static"]
html_extra_path = ["extra"]
html_css_files = ["katex/katex.min.css", "style.css"]
html_js_files = ["katex/katex.js", "katex/contrib/auto-render.js", "katex.js"]
html_copy_source = False
html_show_sphinx = False
# Simulator output is no C++: what cannot be highlighted is shown plain.
# A translation has links of its own, to the glossary; translation.py compares the others.
suppress_warnings = ["misc.highlighting_failure", "i18n.inconsistent_references"]


# TeX stays TeX in the page, and KaTeX sets it when the page opens.
def mathematics(left, right):
    def visit(writer, node):
        writer.body.append(f'<span class="math">{left}{writer.encode(node.astext())}{right}</span>')
        raise nodes.SkipNode
    return visit


class ChineseInPairs(SearchChinese):
    """Sphinx needs a dictionary to find Chinese words; pairs of neighbouring characters in text and query need none."""
    js_splitter_code = r"""
function splitQuery(query) {
  return (query.match(/[a-zA-Z0-9_]+|[\u4e00-\u9fff]+/g) || []).flatMap((word) =>
    /[\u4e00-\u9fff]/.test(word) && word.length > 2 ? [...word.slice(1)].map((c, i) => word[i] + c) : [word]);
}
"""

    def split(self, input):
        runs = re.findall("[\u4e00-\u9fff]+", input)
        return [run[i:i + 2] for run in runs for i in range(len(run) - 1)] + super().split(input)


def setup(app):
    app.add_search_language(ChineseInPairs)
    app.add_html_math_renderer("katex", (mathematics(r"\(", r"\)"), None), (mathematics(r"\[", r"\]"), None))


html_math_renderer = "katex"
