"""Build the site: `make docs`. `python docs/build.py FOLDER protocol/methods/graphs` builds one page of it (and the first) in seconds, with links that lead nowhere.

Sphinx reads what is written into _proc/ first: notebooks without the directives of nbdev, a page of reference for each module, the pages beside the book.
"""
import importlib
import inspect
import re
import shutil
import sys
from pathlib import Path

import click
from myst_parser.mdit_to_docutils.base import default_slugify
from nbdev.process import NBProcessor
from nbdev.processors import hide_, mk_cell, write_nb
from sphinx.cmd.build import build_main

from mfdl.base.files import progress_bar
from mfdl.tools.cli import app

ROOT = Path(__file__).parent.parent
APART = {"app", ".ipynb_checkpoints"}  # folders of notebooks that are no pages
BESIDE = ["CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/*.md"]  # Markdown files that are pages of the site,
PAGES = ["course.md", "elsewhere.md"]  # and those of docs/
TITLE = r"""title[=(]+"([^"{]+)\""""  # a title in the code of a figure, unless it is computed


def default_exp_(cell, module: str) -> None:
    """For nbdev: the cell that names the module is not shown."""
    del cell["source"]


def site_links(markdown: str) -> str:
    """Links as they are on the site: the pages beside the book are among its pages, what is no page is a file, and a heading is called what MyST calls it."""
    markdown = re.sub(r"\]\((\.\./)?nbs/", "](", markdown).replace("](../app/", "](path:../../nbs/app/")
    markdown = re.sub(r"(\]\((?:\.\./)*)\.\./(?:docs/)?((?:benchmarks/)?\w+\.md)", r"\1\2", markdown)
    return re.sub(r"(\]\([^()#\s:]*#)((?:[^()\s]|\(\S*?\))+)\)", lambda link: f"{link[1]}{default_slugify(link[2])})", markdown)


def describe_figures(cells: list) -> None:
    """Say what a figure shows to those who cannot see it: its titles, or else that of its section."""
    heading = ""
    for cell in cells:
        if cell.cell_type == "markdown": heading = (re.findall(r"^#+ (.*)$", cell.source, re.M) or [heading])[-1]
        elif any("image/png" in output.get("data", {}) for output in cell.outputs):
            alt = "; ".join(re.findall(TITLE, cell.source)) or heading
            cell.metadata["mystnb"] = {"image": {"alt": "Figure: " + re.sub(r"[$\\]", "", alt)}}


def stage_notebook(source: Path, target: Path) -> str | None:
    """Write a notebook as the site shows it; returns the module that it is the source of."""
    processor = NBProcessor(source, procs=[hide_, default_exp_])
    module = next((cell.directives_["default_exp"][0] for cell in processor.nb.cells if "default_exp" in cell.directives_), None)
    if module in ("__init__", "__main__") or module and not importlib.import_module(f"mfdl.{module}").__all__: module = None  # nothing of its own to describe
    processor.process()
    cells = processor.nb.cells
    for cell in cells:
        if cell.cell_type == "markdown": cell.source = site_links(cell.source)
    describe_figures(cells)
    if source.stem[:2].isdigit(): cells[0].source = cells[0].source.replace("# ", f"# {source.stem[:2]} ", 1)
    up = "../" * (len(source.relative_to(ROOT / "nbs").parts) - 1)
    if module: cells.append(mk_cell(f"Reference: [`mfdl.{module}`]({up}api/{module}.rst)", "markdown"))
    if target.name == "index.ipynb": cells.append(mk_cell((ROOT / "docs" / "contents.md").read_text(), "markdown"))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_nb(processor.nb, target)
    return module


def headed(title: str, text: str) -> str:
    return f"{title}\n{'=' * len(title)}\n\n{text}\n"


def is_data(thing) -> bool:
    """Whether autodoc takes it for a constant, which it documents only by name."""
    return not (inspect.isroutine(thing) or inspect.isclass(thing) or hasattr(thing, "__wrapped__"))


def module_page(module: str, chapter: str) -> str:
    """Everything public of a module: first functions and classes, then constants."""
    loaded = importlib.import_module(f"mfdl.{module}")
    constants = [f".. autodata:: mfdl.{module}.{name}" for name in loaded.__all__ if is_data(getattr(loaded, name))]
    page = headed(f"mfdl.{module}", f"Explained in :doc:`/{chapter}`.\n\n.. automodule:: mfdl.{module}\n   :members:")
    return page + ("\nConstants\n---------\n\n" + "\n".join(constants) + "\n" if constants else "")


def stage_reference(chapters: dict[str, str], folder: Path) -> None:
    """Write a page for each module, and one that lists them in the order of the chapters that explain them."""
    folder.mkdir()
    for module, chapter in chapters.items(): (folder / f"{module}.rst").write_text(module_page(module, chapter))
    summary = [".. autosummary::", "", *(f"   mfdl.{module}" for module in chapters)]
    contents = [".. toctree::", "   :hidden:", "", *(f"   {module}" for module in chapters)]
    (folder / "index.rst").write_text(headed("Functions and classes", "\n".join([*summary, "", *contents])))


def command_page(name: str, command: click.Command) -> str:
    """What a command does, and all its options."""
    module = command.callback.__module__
    held = next(held for held, thing in vars(importlib.import_module(module)).items() if thing is command)
    return f".. click:: {module}:{held}\n   :prog: mfdl {name}\n"


def stage_commands(folder: Path) -> None:
    """Write a page for each command of the command line, also those that it loads only when they are asked for, and one that lists them."""
    folder.mkdir()
    context = click.Context(app)
    commands = {name: app.get_command(context, name) for name in [*app.list_commands(context), "account --log"]}
    pages = {name: name.replace(" --", "-") for name in sorted(commands)}
    for name, page in pages.items(): (folder / f"{page}.rst").write_text(command_page(name, commands[name]))
    rows = [f"   * - :doc:`mfdl {name} <{page}>`\n     - {commands[name].get_short_help_str(limit=200)}" for name, page in pages.items()]
    summary = [".. list-table::", "   :class: names", "", *rows]
    contents = [".. toctree::", "   :hidden:", "", *(f"   {page}" for page in pages.values())]
    (folder / "index.rst").write_text(headed("Commands", "\n".join([*summary, "", *contents])))


def notebooks() -> list[Path]:
    """The notebooks that are pages of the site, as paths below nbs/."""
    return [path for path in sorted(path.relative_to(ROOT / "nbs") for path in (ROOT / "nbs").rglob("*.ipynb")) if not APART & set(path.parts)]


def stage(target: Path, only: list[Path]) -> None:
    """Write all that Sphinx reads anew into the folder `target`, which has to be beside nbs/ for links to files to hold; or `only` some notebooks."""
    shutil.rmtree(target, ignore_errors=True)
    chapters = {}
    for path in progress_bar(only or notebooks(), desc="chapters"):
        module = stage_notebook(ROOT / "nbs" / path, target / path)
        if module: chapters[module] = path.with_suffix("").as_posix()
    if only: return
    stage_reference(chapters, target / "api")
    stage_commands(target / "commands")
    (target / "benchmarks").mkdir()
    (target / "benchmarks" / "index.rst").write_text(headed("Time and memory", "What ``make benchmarks`` measured.\n\n.. toctree::\n   :glob:\n\n   *"))
    for path in (path for pattern in BESIDE for path in ROOT.glob(pattern)): (target / path.relative_to(ROOT)).write_text(site_links(path.read_text()))
    for name in PAGES: (target / name).write_text(site_links((ROOT / "docs" / name).read_text()))


def build(site: Path, only: list[Path]) -> None:
    """Build into the folder `site`, which is replaced only when there was no warning; or `only` some notebooks, whatever they link to."""
    source = ROOT / ("_page" if only else "_proc")
    built = source / ".built"
    stage(source, only)
    options = ["-Q"] if only else ["-W", "--keep-going"]
    if build_main([*options, "-j", "auto", "-c", str(ROOT / "docs"), "-d", str(built / "doctrees"), str(source), str(built / "html")]):
        raise SystemExit("the site has not been built: see the warnings above")
    for path in only or notebooks(): shutil.copy(ROOT / "nbs" / path, built / "html" / path)
    shutil.rmtree(site, ignore_errors=True)
    shutil.move(built / "html", site)
    print(f"the site is in {site}, and begins with index.html")


if __name__ == "__main__":
    folder, *names = sys.argv[1:] or [ROOT / "_docs"]
    build(Path(folder), [Path(f"{name}.ipynb") for name in ["index", *names]] if names else [])
