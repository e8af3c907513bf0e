"""The site: every notebook is a page of it, and every page holds in a browser, from its file and without a network. One page is built and seen in `make test`."""
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urldefrag

import click
import pytest
from conftest import DOCUMENTED, ROOT
from filelock import FileLock

from mfdl.tools.cli import app

pytestmark = pytest.mark.browser
NOTEBOOKS = [str(path.relative_to(ROOT / "nbs").with_suffix("")) for path in sorted((ROOT / "nbs").rglob("*.ipynb")) if not {"app", ".ipynb_checkpoints"} & set(path.parts)]
BESIDE = [str(path.relative_to(ROOT).with_suffix("")) for pattern in ("C*.md", "benchmarks/*.md") for path in ROOT.glob(pattern)]
COMMANDS = {name.replace(" --", "-"): name for name in [*app.list_commands(click.Context(app)), "account --log"]}  # page -> what is typed
PAGES = [*NOTEBOOKS, *(f"api/{module}" for module in DOCUMENTED), *(f"commands/{name}" for name in COMMANDS), *BESIDE, "api/index", "commands/index"]
PAGES += ["course", "elsewhere", "benchmarks/index", "search"]

TYPESET = "() => window.MathJax?.startup.promise.then(() => true)"

LOOK = r"""() => {
  const faults = [], say = (what, e) => faults.push(`${what}: ${e.outerHTML.slice(0, 160)}`), all = selector => [...document.querySelectorAll(selector)]
  const scrolls = e => e && e !== document.body && (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement))
  if (document.documentElement.scrollWidth > innerWidth) faults.push(`wider than the window: ${document.documentElement.scrollWidth} of ${innerWidth} px`)
  for (const e of all("main *")) if (e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e)) say("sticks out", e)
  for (const e of all("img")) {
    if (!e.complete || !e.naturalWidth) say("missing image", e)
    if (!e.alt.trim() || e.src.endsWith(e.alt)) say("image without a description", e)
  }
  for (const e of all("mjx-merror, [data-mml-node=merror], merror")) say("mathematics with an error", e)
  for (const e of all(".math")) if (!e.querySelector("mjx-container")) say("mathematics as typed", e)
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT)
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement
    if (!e.closest("pre, code, script, style, mjx-container, .sig, .field-list strong") && /[$`]|\]\(|\*\*|\\\(/.test(texts.currentNode.data)) say("markup as typed", e)
  }
  for (const e of all("pre")) if (/^#\s*\|/m.test(e.textContent)) say("directive of nbdev", e)
  return faults
}"""

# A text that looks like one before it (the same elements and classes up to the root) has its contrast: on pages full of code, that is nearly all.
ONE_OF_EACH = """() => {
  const seen = new Set()
  for (const e of document.querySelectorAll("mjx-container")) e.remove()
  for (const e of [...document.querySelectorAll("body *")].filter(e => !e.firstElementChild && e.textContent.trim())) {
    let looks = ""
    for (let a = e; a; a = a.parentElement) looks += `${a.tagName} ${a.className} ${a.getAttribute("style")};`
    if (seen.has(looks)) e.remove()
    seen.add(looks)
  }
}"""

FIGURES_IN_THE_DARK = """() => [...document.querySelectorAll("main img")].map(e => [e.alt, getComputedStyle(e).backgroundColor.match(/[\\d.]+/g).map(Number)])
  .filter(([_, [red, green, blue, alpha]]) => alpha === 0 || Math.min(red, green, blue) < 128).map(([alt]) => `dark behind the figure: ${alt}`)"""


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site, built once, whichever worker comes first."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ: folder = folder.parent
    with FileLock(folder / "site.lock"):
        if not (folder / "site").exists():
            if (folder / "site.failed").exists(): pytest.fail("the site has not been built, see above")
            built = subprocess.run([sys.executable, ROOT / "docs" / "build.py", folder / "site"], capture_output=True, text=True)
            if built.returncode: (folder / "site.failed").touch()
            assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


@cache
def anchors(path: Path) -> set[str]:
    return set(re.findall(r"""\bid=["']([^"']+)""", path.read_text()))


def broken_links(page) -> list[str]:
    """Links to files that do not exist, and to places that they do not have."""
    faults = []
    for link in page.evaluate("[...document.links].map(a => a.href)"):
        if not link.startswith("file:"): continue
        address, anchor = urldefrag(link)
        path = Path(unquote(address.removeprefix("file://").partition("?")[0]))
        if not path.is_file() or anchor and unquote(anchor) not in anchors(path): faults.append(f"broken link: {link}")
    return faults


@pytest.fixture(scope="module")
def page(chromium):
    """One for all visits, which is much faster than one for each."""
    return chromium.new_page(reduced_motion="reduce")


@cache
def axe():
    from axe_playwright_python.sync_playwright import Axe
    return Axe()


def poor_contrasts(page, theme: str) -> list[str]:
    """Texts that WCAG 2 AA calls too pale, by axe-core."""
    page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
    found = axe().run(page, options={"runOnly": ["color-contrast"], "resultTypes": ["violations"], "preload": False}).response["violations"]
    return [f"poor contrast ({theme}): {node['html'][:100]}: {node['failureSummary']}" for violation in found for node in violation["nodes"]]


def faults(page, url: str, links=True) -> list[str]:
    """Everything that is wrong with a page, also with its links: at 390 px first, then on a desktop, in light and dark."""
    found = []
    listeners = {
        "request": lambda request: request.url.startswith(("file:", "data:")) or found.append(f"asks for {request.url}"),
        "requestfailed": lambda request: found.append(f"does not get {request.url}"),
        "console": lambda message: message.type == "error" and found.append(f"console: {message.text}"),
        "pageerror": lambda error: found.append(f"error: {error}"),
    }
    for event in listeners: page.on(event, listeners[event])
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(url)
    page.evaluate(TYPESET)
    found += page.evaluate(LOOK) + (broken_links(page) if links else [])
    page.set_viewport_size({"width": 1280, "height": 900})
    page.evaluate(ONE_OF_EACH)
    found += poor_contrasts(page, "light") + poor_contrasts(page, "dark") + page.evaluate(FIGURES_IN_THE_DARK)
    for event in listeners: page.remove_listener(event, listeners[event])
    return found


def test_one_page(page, tmp_path):
    """Built by itself, so that links to other pages lead nowhere."""
    subprocess.run([sys.executable, ROOT / "docs" / "build.py", tmp_path / "site", "protocol/methods/graphs"], check=True, capture_output=True)
    assert faults(page, (tmp_path / "site" / "protocol" / "methods" / "graphs.html").as_uri(), links=False) == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", PAGES)
def test_page(page, site, name):
    assert faults(page, (site / f"{name}.html").as_uri()) == []


WELL = "<a href='#here' id='here'>All</a> is <span class='math'><mjx-container>well</mjx-container></span>, and <code>a[0](b) ** c</code> <b class='sig'>f(**options)</b>"
BROKEN = {
    "": "",
    "<a href='nowhere.html'>there</a>": "broken link",
    "<a href='#nowhere'>there</a>": "broken link",
    "<img alt='A figure' src='none.png'>": "missing image",
    "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>": "image without a description",
    "<img alt='A figure' src='data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs='>": "dark behind the figure",
    "<script src='https://example.org/mathjax.js'></script>": "asks for https://example.org",
    "<script>console.error('no')</script>": "console: no",
    "<script>missing()</script>": "error: missing is not defined",
    "<p>Costs $x$.</p>": "markup as typed",
    "<p>As in [`accounting.methods.solver`](08.ipynb).</p>": "markup as typed",
    "<p>Raises ``ValueError``.</p>": "markup as typed",
    "<p>Is **typed**.</p>": "markup as typed",
    r"<span class='math'>\(x\)</span>": "mathematics as typed",
    "<mjx-container><g data-mml-node='merror'>x</g></mjx-container>": "mathematics with an error",
    "<pre>#| export\ndef f(): pass</pre>": "directive of nbdev",
    "<div style='width: 500px'>wide</div>": "wider than the window",
    "<div style='width: 500px'>wide</div><style>body { overflow-x: hidden }</style>": "sticks out",
    "<p style='color: #999'>pale</p>": "poor contrast (light)",
    "<p>dark on dark</p><style>[data-theme=dark] { background: #333 }</style>": "poor contrast (dark)",
}


@pytest.mark.nightly
@pytest.mark.parametrize("broken", BROKEN)
def test_every_fault_is_noticed(page, tmp_path, broken):
    (tmp_path / "page.html").write_text(f"<!doctype html><html lang='en'><title>Page</title><main>{WELL}{broken}</main></html>")
    found = faults(page, (tmp_path / "page.html").as_uri())
    assert any(fault.startswith(BROKEN[broken]) for fault in found) if broken else found == []


@pytest.mark.nightly
def test_the_site_has_these_pages_and_the_first_leads_to_all(page, site):
    assert {str(path.relative_to(site).with_suffix("")) for path in site.rglob("*.html") if "_static" not in path.parts} == set(PAGES)
    page.goto((site / "index.html").as_uri())
    links = page.evaluate("[...document.querySelectorAll('.bd-sidebar-primary nav a')].map(a => a.getAttribute('href').replace('.html', ''))")
    assert set(PAGES) - set(links) == {"search", "index"}


@pytest.mark.nightly
@pytest.mark.parametrize("module", DOCUMENTED)
def test_all_that_is_public_is_in_the_reference(site, module):
    names = importlib.import_module(f"mfdl.{module}").__all__
    described = {anchor for anchor in anchors(site / "api" / f"{module}.html") if anchor.startswith(f"mfdl.{module}.")}
    assert {anchor.removeprefix(f"mfdl.{module}.").split(".")[0] for anchor in described} == set(names)


@pytest.mark.nightly
def test_parameters_are_described(page, site):
    page.goto((site / "api" / "protocol.gossip.html").as_uri())
    entry = page.inner_text("dl:has(> #mfdl\\.protocol\\.gossip\\.gossip_matrix)")
    assert "with at least one node" in entry and "in the order of list(graph)" in entry


@pytest.mark.nightly
@pytest.mark.parametrize("words, expected", [("row_sensitivity", "api/accounting.gaussian_dp.html"), ("Renaissance", "index.html"), ("qqqq", None)])
def test_search(page, site, words, expected):
    errors = []
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    page.goto((site / "search.html").as_uri() + f"?q={words}")
    page.wait_for_selector("#search-results .search-summary:not(:empty)")
    found = page.evaluate("[...document.querySelectorAll('#search-results li a')].map(a => a.href)")
    assert not errors and (any(f"/{expected}" in link for link in found) if expected else not found)


@pytest.mark.nightly
def test_the_reader_can_switch_to_dark(chromium, site):
    page = chromium.new_page(color_scheme="light")
    page.goto((site / "index.html").as_uri())
    shade = "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number))"
    assert page.evaluate(shade) > 200
    page.get_by_label("Color mode").click()
    page.get_by_role("button", name="Dark").click()
    page.wait_for_function(f"{shade} < 60")
    page.reload()  # it stays
    page.wait_for_function(f"{shade} < 60")
    page.close()


TOO_LONG = "() => [...document.querySelectorAll('.cell_input pre')].map(e => e.scrollWidth > e.clientWidth)"


@pytest.mark.nightly
def test_code_fits(chromium, site):
    """All but a few cells, on screens of two widths; each page is read once, without scripts, which takes half the time."""
    page = chromium.new_page(java_script_enabled=False)
    widths = {1280: [], 1440: []}
    for name in NOTEBOOKS:
        page.goto((site / f"{name}.html").as_uri(), wait_until="domcontentloaded")
        for width, overflows in widths.items():
            page.set_viewport_size({"width": width, "height": 800})
            overflows += page.evaluate(TOO_LONG)
    page.close()
    for overflows in widths.values(): assert len(overflows) > 1000 and sum(overflows) < 0.05 * len(overflows)


@pytest.mark.nightly
def test_a_line_of_100_characters_is_not_broken_beside_a_scroll_bar(page, site):
    page.set_viewport_size({"width": 1280 - 15, "height": 800})
    page.goto((site / "protocol" / "methods" / "graphs.html").as_uri())
    height = "n => { const e = document.querySelector('.cell_input pre'); e.textContent = 'x '.repeat(n).slice(0, n - 1) + 'x'; return e.clientHeight }"
    assert page.evaluate(height, 100) == page.evaluate(height, 1) < page.evaluate(height, 150)


@pytest.mark.nightly
def test_code_is_copied_as_it_is_and_outputs_are_not(chromium, site):
    context = chromium.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto((site / "protocol" / "methods" / "graphs.html").as_uri())
    code = page.locator(".cell_input pre").first
    page.wait_for_selector("button.copybtn", state="attached")
    assert page.locator(".cell_input button.copybtn").count() == page.locator(".cell_input pre").count()
    assert not page.locator(".cell_output button.copybtn").count()
    code.hover()
    page.locator(".cell_input button.copybtn").first.click()
    page.wait_for_selector("button.copybtn.success")
    assert page.evaluate("navigator.clipboard.readText()").strip() == code.inner_text().strip()
    context.close()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["index", "protocol/methods/graphs", "tutorials/your_graph"])
def test_a_notebook_is_downloaded_from_its_page(page, site, name):
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto((site / f"{name}.html").as_uri())
    link = page.get_attribute(".btn-download-notebook", "href")
    assert link == f"{name.split('/')[-1]}.ipynb"
    assert json.loads((site / name).with_name(link).read_text()) == json.loads((ROOT / "nbs" / f"{name}.ipynb").read_text())


@pytest.mark.nightly
@pytest.mark.parametrize("address, name", COMMANDS.items())
def test_a_command_is_described_with_all_its_options(page, site, address, name):
    page.goto((site / "commands" / f"{address}.html").as_uri())
    text = page.inner_text("article")
    command = app.get_command(click.Context(app), name)
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert f"mfdl {name}" in text and all(spelt in text for option in options for spelt in option.opts)
    assert all(f"[default: {option.default}]" in text for option in options if isinstance(option.default, str))


NAMES = "() => [...document.querySelectorAll('td code .pre')].filter(e => e.getClientRects().length > 1).map(e => e.textContent)"


@pytest.mark.nightly
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["index", "api/index"])
def test_tables_do_not_break_names(page, site, name, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.goto((site / f"{name}.html").as_uri())
    assert page.locator("td code .pre").count() and page.evaluate(NAMES) == []


@pytest.mark.nightly
@pytest.mark.parametrize("address, expected", [
    ("", {}),
    ("https://github.com/someone/elsewhere", {
        "protocol/methods/graphs": ["someone/elsewhere/edit/main/nbs/protocol/methods/graphs.ipynb", "gh/someone/elsewhere/main?urlpath=lab/tree/nbs/protocol/methods/graphs.ipynb",
                               "github/someone/elsewhere/blob/main/nbs/protocol/methods/graphs.ipynb"],
        "CONTRIBUTING": ["someone/elsewhere/edit/main/CONTRIBUTING.md"],
        "elsewhere": ["someone/elsewhere/edit/main/docs/elsewhere.md"],
        "commands/index": ["https://github.com/someone/elsewhere"],
    }),
])
def test_links_to_the_repository_are_there_once_it_has_an_address(tmp_path, address, expected):
    """On a site of four pages, of a project that has this address."""
    for name in ("docs/conf.py", "docs/_static", "docs/elsewhere.md", "CONTRIBUTING.md", "nbs/protocol/methods/graphs.ipynb"):
        copied = tmp_path / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copied)
    urls = f'\n[project.urls]\nRepository = "{address}"\n' if address else ""
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + urls)
    source = tmp_path / "_proc"
    for name in ("protocol/methods/graphs.ipynb", "CONTRIBUTING.md", "elsewhere.md", "commands/index.md"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "nbs" / name, source / name) if name.endswith(".ipynb") else (source / name).write_text("# Page\n\nText.\n")
    (source / "index.md").write_text("# Site\n\n```{toctree}\n:glob:\n\n*\n*/*\n```\n")
    command = [sys.executable, "-m", "sphinx", "-q", "-c", tmp_path / "docs", source, tmp_path / "html"]
    subprocess.run(command, check=True, capture_output=True)
    pages = {name: (tmp_path / "html" / f"{name}.html").read_text() for name in ("protocol/methods/graphs", "CONTRIBUTING", "elsewhere", "commands/index")}
    for name, links in expected.items(): assert all(link in pages[name] for link in links), name
    assert "/edit/" not in pages["commands/index"]
    if not address: assert not any(re.search(r'/edit/|href="https://(github|mybinder|colab)', page) for page in pages.values())
