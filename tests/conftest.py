import importlib
import inspect
import json
import os
import pkgutil
import re
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import matplotlib
import pytest
from hypothesis import settings

import mfdl
from mfdl.base.downloads import find_file

matplotlib.use("Agg")
settings.register_profile("mfdl", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("mfdl")

ROOT = Path(__file__).parent.parent
CORE = sorted((ROOT / "nbs").glob("*/[0-9][0-9]_*.ipynb"))
APART = {"tutorials", "experiments", "projects", "app", ".ipynb_checkpoints"}
CHAPTERS = sorted(path for path in (ROOT / "nbs").glob("*/**/[!.]*.ipynb") if not APART & set(path.parts))  # those of the core, and those on the shelves
MODULES = [module.name.removeprefix("mfdl.") for module in pkgutil.walk_packages(mfdl.__path__, "mfdl.") if not module.ispkg and "._" not in module.name]
DOCUMENTED = [module for module in MODULES if re.search(rf"^    from mfdl\.{re.escape(module)} import", (ROOT / "mfdl" / "__init__.py").read_text(), re.M)]  # by public names
FIGURES = sorted((ROOT / "figures").glob("*.json"))  # the records of how they came about

CHROMIUM = "--no-sandbox --disable-gpu --disable-quic --no-first-run --no-proxy-server --disable-background-networking --disable-component-update --disable-sync".split()
CHROMIUM.append("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost")  # a page that needs the network fails here as it fails offline


def defined(module):
    """The functions and classes of a module without an underscore, public or not."""
    loaded = importlib.import_module(f"mfdl.{module}")
    own = {name: thing for name, thing in vars(loaded).items() if not name.startswith("_") and getattr(thing, "__module__", "") == loaded.__name__}
    return sorted(name for name, thing in own.items() if inspect.isclass(thing) or inspect.isroutine(inspect.unwrap(thing)))


def printed(stem):
    """What the cells of an experiment printed when it made a figure."""
    record = json.loads((ROOT / "figures" / f"{stem}.json").read_text())
    return "".join(f"{line}\n" for cell in record["cells"] for line in cell["printed"])


def pytest_addoption(parser):
    parser.addoption("--browser", action="store_true", help="run notebooks in JupyterLab in Chromium, in place of a kernel; what needs Chromium fails where there is none")
    parser.addoption("--begin-within", type=float, metavar="SECONDS", help="begin no test later than that: the rest is skipped, and said to be left to make test")


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a shell's background job: what tests start and interrupt would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.began = time.monotonic()


def chromium_path():
    """The path of Chromium, or None."""
    names = [os.environ["MFDL_CHROMIUM"]] if os.environ.get("MFDL_CHROMIUM") else ["chromium", "chromium-browser", "google-chrome"]
    return next(filter(None, map(shutil.which, names)), None)


def pytest_collection_modifyitems(config, items):
    if config.getoption("browser") or chromium_path(): return
    for item in items:
        if item.get_closest_marker("browser"): item.add_marker(pytest.mark.skip(reason="there is no Chromium: make chromium"))


def pytest_runtest_setup(item):
    limit = item.config.getoption("begin_within")
    if limit and time.monotonic() - item.config.began > limit: pytest.skip("left to make test: no time")


def part(nodeid):
    """The row of the table of times to which a test belongs."""
    file, _, name = nodeid.partition("::")
    if name.startswith("test_chapter_holds"): return "chapters"
    if name.startswith(("test_experiment_runs", "test_notebook_runs")): return name.split("[")[0].removeprefix("test_").replace("_", " ")
    return os.path.dirname(file)


def pytest_terminal_summary(terminalreporter):
    """What each part took, in seconds of all workers together."""
    seconds, tests = Counter(), Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "when")):
        seconds[part(report.nodeid)] += getattr(report, "duration", 0.0)  # one that could not be collected has none
        tests[part(report.nodeid)] += report.when == "call"
    if len(seconds) < 2: return
    terminalreporter.section("seconds of work in each part, and tests")
    for name, took in seconds.most_common(): terminalreporter.write_line(f"{took:8.0f}  {tests[name]:5}  {name}")
    terminalreporter.write_line(f"{seconds.total():8.0f}  {tests.total():5}  in all, {time.monotonic() - terminalreporter.config.began:.0f} s by the clock")


@pytest.fixture(scope="module")  # not longer: an event loop runs in this thread while Playwright does
def chromium():
    """A headless Chromium, as Playwright's Browser: `page = chromium.new_page()`."""
    from playwright.sync_api import sync_playwright
    path = chromium_path()
    if path is None: pytest.fail("no Chromium on this machine: install chromium, or set MFDL_CHROMIUM to the path of one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory):
    """JupyterLab in that browser, on a copy of the notebooks and of what they link to."""
    from lab import Lab, serve
    root = tmp_path_factory.mktemp("lab")
    for folder in ("nbs", "figures", "benchmarks"): shutil.copytree(ROOT / folder, root / folder)
    for file in filter(Path.is_file, ROOT.iterdir()): shutil.copy(file, root)
    with serve(root) as address: yield Lab(chromium, address, root)


@pytest.fixture(scope="session")
def reference():
    """Squared sensitivities and earlier accounting on the Florentine graph, computed independently of this project by brute force."""
    return json.loads((Path(__file__).parent / "reference_pndp.json").read_text())


@pytest.fixture
def facebook_file():
    path = find_file("facebook_ego/414.edges")
    if path is None: pytest.skip("data set facebook_ego/414.edges is not on this machine: set MFDL_DATA to the folder that holds it")
    return path
