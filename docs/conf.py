"""The site of the book: `make docs`."""
import importlib
import inspect
import re
import tomllib
from dataclasses import is_dataclass
from importlib.metadata import files
from pathlib import Path
from types import GenericAlias

import click
from fastcore.docments import docments
from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx.util.rst import escape

import mfdl

ROOT = Path(__file__).parent.parent
FOLDERS = ["nbs", "", "docs"]  # of the project that hold what is a page of the site

project, author, copyright = "mfdl", "The mfdl authors", "2026, the mfdl authors"
version = release = mfdl.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.mathjax", "sphinx_copybutton", "sphinx_click"]
smartquotes_action = "qe"  # quotes and ellipses; the two dashes of an option stay two
exclude_patterns = [".built"]
highlight_language = "none"

nb_execution_mode = "off"  # notebooks are committed with outputs
nb_merge_streams = True
nb_ipywidgets_js = {}  # widgets need a kernel: the site shows the picture beside them, and loads nothing
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4

copybutton_selector = "div.highlight:not(.cell_output *) pre"  # code, not what it printed

autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"  # those of parameters() below: not what a base class of a library takes
autodoc_typehints_format = "short"
autodoc_default_options = {"undoc-members": True, "no-value": True}
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "sphinx_book_theme"
html_title = "mfdl"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sourcelink = False
html_copy_source = False
html_use_index = False
html_domain_indices = False
html_theme_options = {"use_download_button": False, "use_fullscreen_button": False, "show_toc_level": 2, "navbar_persistent": []}
html_context = {"default_mode": "auto"}


def repository_options(address: str | None) -> dict:
    """What the theme needs for links to a repository, to edit a page or to run it elsewhere: nothing as long as the project has no address."""
    if address is None: return {}
    elsewhere = {"notebook_interface": "jupyterlab", "binderhub_url": "https://mybinder.org"}
    if "github" in address: elsewhere["colab_url"] = "https://colab.research.google.com"  # which opens no notebook from another place
    repository = {"repository_url": address, "repository_branch": "main", "path_to_docs": "nbs"}
    return {**repository, "use_repository_button": True, "use_edit_page_button": True, "launch_buttons": elsewhere}


html_theme_options |= repository_options(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {}).get("Repository"))

# One file with everything, glyphs as paths: it works without a network and without a server.
mathjax = next(path for path in files("django-static-mathjax") if path.match("es5/tex-svg.js"))
html_static_path.append(str(mathjax.locate()))
mathjax_path = mathjax.name
mathjax3_config = {"options": {"enableMenu": False}}


def rst(text: str) -> str:
    """Text of a docstring, in which only code between backticks is marked, as reStructuredText."""
    return "".join(f"``{part[1:-1]}``" if part.startswith("`") else escape(part) for part in re.split(r"(`[^`\n]+`)", text))


def marked(line: str) -> str:
    """A line of a numpydoc docstring, in which only code between backticks is marked."""
    parts = re.split(r"`+([^`]+)`+", line)
    return "".join(f"``{part}``" if k % 2 else re.sub(r"([*_|])", r"\\\1", part) for k, part in enumerate(parts))


def constant(name: str, value) -> list[str]:
    """The comment beside a constant, and its value when that is short; for a command of the command line, what it does."""
    if isinstance(value, click.Command): return [rst(value.get_short_help_str(limit=200))]
    module, name = name.rsplit(".", 1)
    comment = re.search(rf"^{name} = [^#\n]*# (.*)$", inspect.getsource(importlib.import_module(module)), re.M)
    return [rst(comment[1]) if comment else "", "", f"``{value!r}``" if len(repr(value)) <= 100 else ""]


def parameters(thing) -> list[str]:
    """The comments beside the parameters of a function, or the fields of a dataclass, as their descriptions, in the order of the signature."""
    comments = {name: rst(comment or "") for name, comment in docments(thing, returns=True).items() if name not in ("self", "cls")}
    result = comments.pop("return", "")
    return ["", *(f":param {name}: {comment}" for name, comment in comments.items()), *([f":returns: {result}"] if result else [])]


def document(app, what: str, name: str, thing, options, lines: list[str]) -> None:
    """Docstrings as the project writes them, for Sphinx."""
    if what != "data" and any(re.fullmatch("-{4,}", line.strip()) for line in lines):  # numpydoc: parameters are described there
        plain = [marked(line) for line in lines]
        lines[:] = NumpyDocstring(plain, Config(napoleon_use_param=False, napoleon_use_rtype=False, napoleon_use_ivar=True), app, what, name, thing).lines()
        return
    lines[:] = constant(name, thing) if what == "data" else [rst(line) for line in lines]
    if inspect.isfunction(thing) or is_dataclass(thing) or inspect.isclass(thing) and "__init__" in vars(thing): lines += parameters(thing)


def skip(app, what: str, name: str, thing, skipped: bool, options) -> bool | None:
    """The fields of a dataclass are described as the parameters of its constructor, types of arrays as constants."""
    if what == "module" and isinstance(thing, GenericAlias): return True
    return True if what == "class" and not callable(thing) and not isinstance(thing, property) else None


def say_where_from(app, page: str, template: str, context: dict, doctree) -> None:
    """The folder of the project where the theme lets readers edit a page: none for pages that no file is the source of."""
    suffix = context.get("page_source_suffix")
    folder = next((folder for folder in FOLDERS if suffix and (ROOT / folder / f"{page}{suffix}").is_file()), None)
    if folder is None: context["page_source_suffix"] = ""
    else: context["doc_path"] = folder


def offer_notebook(app, page: str, template: str, context: dict, doctree) -> None:
    """A button that downloads the notebook, which docs/build.py puts beside its page."""
    if context.get("page_source_suffix") != ".ipynb": return
    button = {"type": "link", "url": f"{Path(page).name}.ipynb", "tooltip": "Download this notebook", "icon": "fas fa-download", "label": "download-notebook"}
    context["header_buttons"].insert(0, button)


def describe_command(app, context, lines: list[str]) -> None:
    """The text of a command, in which only code between backticks is marked, and its examples as code."""
    described = []
    for line, before in zip(lines, ["", *lines], strict=False):
        example = line.startswith("| ")
        if example and not before.startswith("| "): described += ["", ".. code-block:: shell", ""]
        described.append(line.replace("| ", "    ", 1) if example else rst(line))
    lines[:] = described


def describe_options(app, context, lines: list[str]) -> None:
    """The options of a command, each with what the command line itself says of it."""
    context.show_default = True
    heads = [line for line in lines if line.startswith(".. option::")]
    options = [option for option in context.command.params if isinstance(option, click.Option) and not option.hidden]
    lines[:] = [line for head, option in zip(heads, options, strict=True) for line in (head, "", "    " + rst(option.get_help_record(context)[1]), "")]


def setup(app) -> None:
    app.connect("autodoc-process-docstring", document)
    app.connect("autodoc-skip-member", skip)
    app.connect("sphinx-click-process-description", describe_command)
    app.connect("sphinx-click-process-options", describe_options)
    app.connect("html-page-context", say_where_from, priority=400)
    app.connect("html-page-context", offer_notebook, priority=502)  # once the theme has its own buttons
