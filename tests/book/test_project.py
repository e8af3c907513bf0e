"""The project is what its notebooks say: exported, clean, with outputs, and light to import."""
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
from importlib.metadata import distributions

import click
import pytest
from click.testing import CliRunner
from conftest import ROOT
from execnb.nbio import nb2str, read_nb
from nbdev.clean import clean_nb
from packaging.specifiers import SpecifierSet

from mfdl.tools.cli import app
from mfdl.tools.experiments import experiments


def test_package_is_what_the_notebooks_export(tmp_path):
    for name in ("settings.ini", "pyproject.toml", "nbs"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    (tmp_path / "mfdl").mkdir()
    subprocess.run([sys.executable, "-c", "from nbdev.doclinks import nbdev_export; nbdev_export()"], cwd=tmp_path, check=True)
    exported, committed = ({str(p.relative_to(folder)): p.read_text() for p in (folder / "mfdl").rglob("*.py")} for folder in (tmp_path, ROOT))
    assert sorted(exported) == sorted(committed), "run make export: a module has no notebook, or a notebook no module"
    different = [name for name in exported if exported[name] != committed[name]]
    assert not different, f"run make export: {different} differ from their notebooks"


def test_what_is_pinned_runs_on_the_oldest_python():
    """Debian 12 has Python 3.11.2, for example."""
    needs = {one.name: one.metadata.get("Requires-Python") or "" for one in distributions()}
    newer = {name: versions for name, versions in needs.items() if "3.11.0" not in SpecifierSet(versions)}
    assert not newer, f"constraints.txt: pin versions for Python 3.11 in place of {newer}"


def unclean(path):
    """What is wrong with the JSON of a notebook, in words."""
    text = path.read_text()
    notebook = read_nb(path)
    before = json.dumps(json.loads(text), sort_keys=True)
    clean_nb(notebook, allowed_cell_metadata_keys=["tags"])
    if os.fspath(ROOT) in text: yield "a path of this machine is in it"
    if json.dumps(json.loads(nb2str(notebook)), sort_keys=True) != before: yield f"run nbdev_clean --fname {path}"


def test_notebooks_are_clean():
    notebooks = sorted((ROOT / "nbs").glob("**/[!.]*.ipynb"))
    wrong = {f"{path.parent.name}/{path.stem}": found for path in notebooks if (found := list(unclean(path)))}
    assert notebooks and not wrong, wrong


def test_a_notebook_that_is_not_clean_is_noticed(tmp_path):
    dirty = json.loads((ROOT / "nbs" / "protocol" / "methods" / "graphs.ipynb").read_text())
    cell = next(cell for cell in dirty["cells"] if cell["cell_type"] == "code")
    cell |= {"execution_count": 7, "source": [f"# {ROOT}"]}
    (tmp_path / "graphs.ipynb").write_text(json.dumps(dirty))
    assert len(list(unclean(tmp_path / "graphs.ipynb"))) == 2


def checkout(folder, *names):
    """Files and folders of the project in another folder, where `make` finds this environment and sets up nothing."""
    for name in names: (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
    (folder / "Makefile").write_text((ROOT / "Makefile").read_text().replace(": setup\n", ":\n"))
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def make(folder, *arguments): return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True)


def test_readme_comes_from_the_index(tmp_path):
    for folder in ("nbs", "tools"): (tmp_path / folder).mkdir()
    checkout(tmp_path, "nbs/index.ipynb", "tools/readme.py")
    assert make(tmp_path, "readme").returncode == 0
    assert (tmp_path / "README.md").read_text() == (ROOT / "README.md").read_text(), "run make readme"


def test_the_tables_of_contents_are_the_notebooks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    contents = runpy.run_path(str(ROOT / "tools" / "contents.py"))
    for (path, *place), title in zip(contents["PLACES"], ("[02 Graphs", "best correlation", "[Sparse views"), strict=True):
        text = next(cell.source for cell in read_nb(path).cells if place[0] in cell.source)
        assert contents["rewritten"](text, *place) == text, "run make contents"
        assert contents["rewritten"](text.replace(f"| {title}", f"| {title}s"), *place) == text != text.replace(f"| {title}", "")


@pytest.mark.nightly
def test_a_chapter_begins_with_one_command_and_runs_with_another(tmp_path):
    for folder in ("nbs", "mfdl"): (tmp_path / folder).mkdir()
    checkout(tmp_path, "tools", "settings.ini", "pyproject.toml", "nbs/index.ipynb", "mfdl/__init__.py")
    title = "A node's \"own\" view of $5"
    made = make(tmp_path, "chapter", "NAME=tools/trial", f"TITLE={title.replace('$', '$$')}", "QUESTION=What can one see from there?", "EXPORT=yes")
    assert made.returncode == 0 and "make refresh NAME=tools/trial" in made.stdout and "nbs/index.ipynb" in made.stdout, made.stderr
    again = make(tmp_path, "chapter", "NAME=tools/trial", "TITLE=Another")
    assert again.returncode and again.stderr.startswith("error: NAME='tools/trial': trial is tools/trial.ipynb")
    chapter = tmp_path / "nbs" / "tools" / "trial.ipynb"
    assert read_nb(chapter).cells[0].source.startswith(f"# {title}\n\n> What can one see from there?\n")
    refreshed = make(tmp_path, "refresh", "NAME=tools/trial")
    assert refreshed.returncode == 0, refreshed.stderr
    assert "def spread(" in (tmp_path / "mfdl" / "tools" / "trial.py").read_text() and "0.039 after 8 rounds" in chapter.read_text()
    of_notebook = runpy.run_path(str(ROOT / "tools" / "lint.py"))["of_notebook"]
    assert not list(of_notebook(chapter, set())) and not subprocess.run([sys.executable, "-m", "ruff", "check", "-q", tmp_path / "nbs"]).returncode


@pytest.mark.parametrize("given, message", [
    (["noise/9_trial", "T"], "NAME='noise/9_trial': expected a part"),
    (["noise/98_Trial", "T"], "NAME='noise/98_Trial': expected a part"),
    (["98_trial", "T"], "NAME='98_trial': expected a part"),
    (["noise/98_class", "T"], "NAME='noise/98_class': class is a word of Python"),
    (["noise/98_trial", ""], "TITLE=''"),
    (["noise/02_trial", "T"], "NAME='noise/02_trial': chapter 02 is 02_gossip.ipynb"),
    (["noise/98_gossip", "T"], "NAME='noise/98_gossip': gossip is protocol/02_gossip.ipynb"),
    (["noise/methods/gossip", "T"], "NAME='noise/methods/gossip': gossip is protocol/02_gossip.ipynb"),
    (["noise/98_trial", "T", "No."], "QUESTION='No.'"),
    (["noise/98_trial", "T", "", "graphs"], "EXPORT='graphs': expected yes"),
])
def test_a_chapter_that_cannot_be_is_refused(tmp_path, given, message):
    there, before = tmp_path / "nbs" / "protocol" / "02_gossip.ipynb", ROOT / "nbs" / "protocol" / "02_gossip.ipynb"
    there.parent.mkdir(parents=True)
    shutil.copy(before, there)
    write_chapter = runpy.run_path(str(ROOT / "tools" / "chapter.py"))["write_chapter"]
    with pytest.raises(ValueError, match=re.escape(message)): write_chapter(tmp_path / "nbs", *given, *[""] * (4 - len(given)))
    assert list((tmp_path / "nbs").rglob("*.ipynb")) == [there]
    assert there.read_bytes() == before.read_bytes()


def test_refresh_names_a_notebook_that_is_not_there(tmp_path):
    (tmp_path / "nbs" / "protocol" / "methods").mkdir(parents=True)
    checkout(tmp_path, "tools", "nbs/protocol/methods/graphs.ipynb")
    for name, says in (("graph", "did you mean protocol/methods/graphs?"), ("protocol/graphs", "did you mean protocol/methods/graphs?"),
                       ("nbs/protocol/methods/graphs.ipynb", "did you mean protocol/methods/graphs?"), ("nope", "expected a part and a notebook")):
        refused = make(tmp_path, "refresh", f"NAME={name}")
        assert refused.returncode and f"NAME={name}: there is no nbs/{name}.ipynb; {says}" in refused.stderr


@pytest.mark.nightly
def test_hooks_pass_and_notice(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("nbs", "mfdl"): shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    (tmp_path / "tools").mkdir()
    checkout(tmp_path, ".pre-commit-config.yaml", ".gitignore", "settings.ini", "pyproject.toml", "README.md", "tools/readme.py")
    env = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / ".venv-hooks"), "GIT_CONFIG_GLOBAL": os.devnull}
    def hooks(): return subprocess.run([sys.executable, "-m", "pre_commit", "run", "--all-files"], cwd=tmp_path, env=env, capture_output=True, text=True)
    for command in ("init -q", "add ."): subprocess.run(["git", *command.split()], cwd=tmp_path, env=env, check=True)
    passed = hooks()
    assert passed.returncode == 0, passed.stdout
    (tmp_path / "mfdl" / "protocol" / "methods" / "graphs.py").write_text("by_hand = 1\n")
    chapter = tmp_path / "nbs" / "protocol" / "methods" / "graphs.ipynb"
    dirty = json.loads(chapter.read_text())
    next(cell for cell in dirty["cells"] if cell["cell_type"] == "code")["execution_count"] = 7
    chapter.write_text(json.dumps(dirty))
    (tmp_path / "README.md").write_text("by hand")
    (tmp_path / "nbs" / "untidy.py").write_text("import os\n")
    for command in ("add .",): subprocess.run(["git", *command.split()], cwd=tmp_path, env=env, check=True)
    assert hooks().stdout.count("Failed") == 4


def commands(text):
    """(command, lines said to be its output) for every `make ...` and `mfdl ...` of a Markdown text: inline, or in a block, where output stands below."""
    blocks = [found[0] or found[1] for found in re.findall(r"^```\w*\n(.*?)^```|((?:^    [^\n]*\n)+)", text, re.M | re.S)]
    found = [(command, []) for command in re.findall(r"`((?:make|mfdl) [^`\n]+)`", text)]
    for block in blocks:
        last = None
        for line in textwrap.dedent(block).splitlines():
            if command := re.match(r"(?:\$ )?((?:make|mfdl) .*)", line): found.append((command[1], last := []))
            elif last is not None and found[-1][0].startswith("make"): last = None
            elif last is not None and line.strip() not in ("", "..."): last.append(line)
    return found


def outcome(command):
    """What a command prints; if it would take long, or changes something, only whether it could be run. Raises ValueError for one that could not."""
    program, *arguments = shlex.split(command, comments=True)
    if program == "make":
        unknown = {word for word in arguments if "=" not in word} - set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
        if unknown: raise ValueError(f"{command}: the Makefile has no target {unknown}")
        return ""
    if arguments[0] in app.commands and len(arguments) == 1 and any(p.required for p in app.commands[arguments[0]].params): arguments.append("--help")  # its name only
    if arguments[0] in ("account", "graphs") or "--help" in arguments:
        result = CliRunner().invoke(app, arguments)
        if result.exit_code: raise ValueError(f"{command}: {result.output}")
        return result.output
    try: context = app.commands[arguments[0]].make_context(arguments[0], arguments[1:])
    except (KeyError, click.UsageError) as error: raise ValueError(f"{command}: {error}") from None
    if context.params.get("experiment", "all") not in {*experiments(), "all"}: raise ValueError(f"{command}: there is no such experiment")
    return ""


def parts(line):
    """The words of a line, and its numbers."""
    number = r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])"
    return re.sub(number, "#", line).split(), [float(x) for x in re.findall(number, line)]


def untrue(text):
    """The commands of a text that cannot be run, and the lines that they do not print."""
    wrong = []
    for command, said in commands(text):
        try: printed = [parts(line) for line in outcome(command).splitlines()]
        except ValueError as error: wrong.append(str(error))
        else: wrong += [line for line in said if not any(words == parts(line)[0] and numbers == pytest.approx(parts(line)[1], rel=1e-5) for words, numbers in printed)]
    return wrong


def lost(path):
    """Links and paths in a Markdown file that lead nowhere."""
    text, pages = path.read_text(), {page.name: re.findall(r"^#+ (.*)", page.read_text(), re.M) for page in path.parent.glob("*.md")}
    headings = {page: {re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in lines} for page, lines in pages.items()}
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", link)]
    named = re.findall(r"`((?:nbs|figures|tests|benchmarks|tools)/[\w./-]+\.\w+)`", text)
    def there(link):
        file, _, heading = link.partition("#")
        return (path.parent / file).exists() and (not heading or file.endswith(".ipynb") or heading in headings.get(file or path.name, ()))
    return [link for link in links + named if not there(link)]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/course.md", "docs/elsewhere.md"])
def test_commands_and_links_hold(name):
    assert not untrue((ROOT / name).read_text()) and not lost(ROOT / name)


def test_the_index_tells_the_numbers_of_its_commands():
    text = "\n".join(cell.source for cell in read_nb(ROOT / "nbs" / "index.ipynb").cells)
    assert not untrue(text)
    told = [re.search(r"worst pair: mu=(\S+), epsilon=(\S+)", outcome(command)) for command, _ in commands(text) if command.startswith("mfdl account")]
    assert told and all(found and found[2] in text for found in told)


def test_what_is_untrue_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("""# A page
`make dinner`, `make refresh NAME=x`, `mfdl reproduce`, `mfdl reproduce nothing`, `mfdl account florentine --steps many`, `figures/none.svg`

    $ mfdl account florentine -t ldp -T 2 --rows 1
    worst pair: mu=1.414, epsilon=7.286 at delta=1e-06
    ...
    worst pair: mu=1.414, epsilon=1.234 at delta=1e-06

[itself](page.md#a-page), [nowhere](nowhere.ipynb), [no such place](#elsewhere)
""")
    wrong = untrue(page.read_text())
    assert [line.split(":")[0] for line in wrong] == ["make dinner", "mfdl reproduce nothing", "mfdl account florentine --steps many", "worst pair"] and "1.234" in wrong[-1]
    assert lost(page) == ["nowhere.ipynb", "#elsewhere", "figures/none.svg"]


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_is_light():
    timed = "import time; t = time.perf_counter(); import mfdl; print(time.perf_counter() - t)"
    assert min(float(run_python(timed)) for _ in range(3)) < 0.3


def test_accounting_does_without_torch():
    heavy = run_python(
        "import sys; from mfdl import account; from mfdl.protocol.algorithms import dp_dsgd; from mfdl.protocol.threat_models import PNDP\n"
        "from mfdl.protocol.gossip import gossip_matrix; from mfdl.protocol.methods.graphs import load_graph; from mfdl.protocol.participation import Participation\n"
        "r = account(dp_dsgd(gossip_matrix(load_graph('ring:n=5')), 3), PNDP([0]), Participation.every_step(3)); r.to_frame(); r.epsilon(1e-6)\n"
        "print([m for m in ('torch', 'matplotlib', 'papermill', 'cvxpy') if m in sys.modules])")
    assert heavy == "[]"
