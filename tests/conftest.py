import json
import os
import pkgutil
import shutil
import signal
from pathlib import Path

import matplotlib
import pytest
from hypothesis import settings

import mfdl
from mfdl.ground.downloads import find_file

matplotlib.use("Agg")
settings.register_profile("mfdl", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("mfdl")

ROOT = Path(__file__).parent.parent
CHAPTERS = sorted((ROOT / "nbs").glob("*/[0-9][0-9]_*.ipynb"))
MODULES = [module.name.removeprefix("mfdl.") for module in pkgutil.walk_packages(mfdl.__path__, "mfdl.") if not module.ispkg and "._" not in module.name]
FIGURES = sorted((ROOT / "figures").glob("*.json"))  # the records of how they came about

CHROMIUM = "--no-sandbox --disable-gpu --disable-quic --no-first-run --no-proxy-server --disable-background-networking --disable-component-update --disable-sync".split()
CHROMIUM.append("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost")  # a page that needs the network fails here as it fails offline


def printed(stem):
    """What the cells of an experiment printed when it made a figure."""
    record = json.loads((ROOT / "figures" / f"{stem}.json").read_text())
    return "".join(f"{line}\n" for cell in record["cells"] for line in cell["printed"])


def pytest_addoption(parser):
    parser.addoption("--browser", action="store_true", help="run the notebooks in JupyterLab in headless Chromium, and all other tests that need a browser")


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a shell's background job: what tests start and interrupt would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "browser(needed=True): is run in Chromium by --browser; where that is needed, skipped without")


def pytest_collection_modifyitems(config, items):
    for item in [] if config.getoption("browser") else items:
        mark = item.get_closest_marker("browser")
        if mark and mark.kwargs.get("needed", True): item.add_marker(pytest.mark.skip(reason="runs in a browser: make test-browser"))


@pytest.fixture(scope="module")  # not longer: an event loop runs in this thread while Playwright does
def chromium():
    """A headless Chromium, as Playwright's Browser: `page = chromium.new_page()`."""
    from playwright.sync_api import sync_playwright
    names = [os.environ["MFDL_CHROMIUM"]] if os.environ.get("MFDL_CHROMIUM") else ["chromium", "chromium-browser", "google-chrome"]
    path = next(filter(None, map(shutil.which, names)), None)
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
