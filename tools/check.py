"""Check what has changed since BASE (by default the last commit), nearest first: `make check`.

Chapters that changed run as a reader runs them, in a kernel; those that import what they export run against the
package, and tests that import it run. What has not begun after a hundred seconds is left to `make test`, and said to be.
"""
import ast
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOTEBOOKS = "tests/book/test_notebooks.py"
SECONDS, AT_LEAST = 100, 30


def git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def changed(base: str) -> set[str]:
    """Files that are not as they were, and new ones; where nothing is, those of the last commit."""
    here = {*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")}
    return here or set(git("diff", "--name-only", "HEAD~1"))


def code(path: Path) -> str:
    if path.suffix == ".py": return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def name_of(path: Path) -> str:
    """A notebook as `make refresh` and tests call it."""
    return path.relative_to(ROOT / "nbs").with_suffix("").as_posix()


def imported(source: str, public: dict[str, str]) -> Iterator[str]:
    """The modules of the package that a source imports, as `part.module`; names of the package itself by where they are defined."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import): yield from (alias.name.removeprefix("mfdl.") for alias in node.names)
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("mfdl"): continue
        home = node.module.removeprefix("mfdl").removeprefix(".")
        for alias in node.names:
            yield home or public.get(alias.name, "")
            yield f"{home}.{alias.name}"


def exported(source: str) -> str | None:
    """The module that a notebook exports."""
    found = re.search(r"^#\|\s*default_exp\s+(\S+)", source, re.M)
    return found and found[1]


def downstream(modules: set[str], uses: dict[Path, set[str]], exports: dict[Path, str | None]) -> list[Path]:
    """The notebooks that import modules, directly or through others, nearest first."""
    found, reached = [], set(modules)
    while new := [path for path in uses if path not in found and uses[path] & reached]:
        found += new
        reached |= {exports[path] for path in new if exports[path]}
    return found


def main(base: str) -> int:
    init = ast.parse((ROOT / "mfdl" / "__init__.py").read_text())
    public = {alias.name: node.module.removeprefix("mfdl.") for node in ast.walk(init) if isinstance(node, ast.ImportFrom) and node.module for alias in node.names}
    sources = {path: code(path) for path in sorted((ROOT / "nbs").rglob("[!.]*.ipynb")) if not {"app", "experiments", ".ipynb_checkpoints"} & set(path.parts)}
    exports = {path: exported(source) for path, source in sources.items()}
    uses = {path: set(imported(source, public)) for path, source in sources.items()}
    files = {ROOT / name for name in changed(base)}
    mine = [path for path in sources if path in files]
    modules = {exports[path] for path in mine if exports[path]}
    below = [path for path in downstream(modules, uses, exports) if path not in mine]
    tests = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if path.name != "test_notebooks.py"]
    tests = [path for path in tests if path in files or modules & set(imported(code(path), public))]
    print(f"changed: {', '.join(path.stem for path in mine) or 'no chapter'}; {len(below)} chapters stand on them, {len(tests)} files of tests name them", flush=True)
    runs = [f"{NOTEBOOKS}::test_notebook_runs_and_shows_what_is_committed[{name_of(path)}]" for path in mine]
    held = [f"{NOTEBOOKS}::test_chapter_holds_for_the_package[{name_of(path)}]" for path in mine + below]
    always = ["tests/book/test_project.py::test_package_is_what_the_notebooks_export", "tests/book/test_project.py::test_notebooks_are_clean"]
    began = time.monotonic()

    def ended(*tests: str) -> int:
        """The exit status of tests, which begin in the time that is left."""
        left = max(SECONDS - (time.monotonic() - began), AT_LEAST)
        pytest = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "worksteal", "--begin-within", str(left)]
        return subprocess.run([*pytest, *tests], cwd=ROOT).returncode

    return max(ended("-m", "", *runs) if runs else 0, ended(*always, *map(str, tests), *held))


if __name__ == "__main__": sys.exit(main(*sys.argv[1:] or ["HEAD"]))
