# layout.py: is every word of the site readable on a phone and on a desk, light and dark? A browser says (layout.js).
# build.py calls it for --check where there is a browser.
import html
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WIDTHS = [390, 768, 1366, 1440, 1920]  # CSS pixels


def browser():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def complaints(site, names):
    """What cannot be read, a line each: on these pages of a site, and in its pictures."""
    pictures = {str(p.relative_to(site)): p.read_text() for p in sorted(site.glob("_images/*.svg"))}
    lists = (f"const pages = {json.dumps([f'{n}.html' for n in names])}, widths = {json.dumps(WIDTHS)}, "
             f"pictures = {json.dumps(pictures)};").replace("</", "<\\/")
    page = site / "layout-check.html"
    page.write_text(f'<!doctype html><meta charset="utf-8"><body><script>{lists}</script>'
                    f"<script>{(HERE / 'layout.js').read_text()}</script>")
    try:
        with tempfile.TemporaryDirectory() as profile:
            command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                       f"--user-data-dir={profile}", "--allow-file-access-from-files", "--window-size=2000,1000",
                       "--virtual-time-budget=100000000", "--dump-dom", page.as_uri()]
            done = subprocess.run(command, capture_output=True, text=True)
    finally:
        page.unlink()
    said = re.search(r'<pre id="complaints">(.*?)</pre>', done.stdout, re.S)
    if not said:
        return ["the browser did not come to an end: " + done.stderr.strip()[-300:]]
    return json.loads(html.unescape(said[1]))
