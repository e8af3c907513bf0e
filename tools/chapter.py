"""Write the skeleton of a new chapter: `make chapter NAME=accounting/methods/price TITLE="The price" QUESTION="What does a node cost?" EXPORT=yes`."""
import keyword
import re
import sys
from pathlib import Path

from nbformat import v4, writes

ROOT = Path(__file__).parent.parent

OPENING = """# {title}

> {question}

Say in plain words who asks this, and why. Then the smallest example that shows the point, \
before any formula: here three nodes on a line, who start far apart."""

IMPORTS = """import matplotlib.pyplot as plt
import networkx as nx
from fastcore.test import test_close

from mfdl.base.figures import PALETTE, STYLE
from mfdl.protocol.gossip import gossip_matrix

plt.rcParams.update(STYLE)"""

CLAIM = """A claim, in words or as an equation; the code that is the claim; its value; \
a check that does not use that code.

The claim here: *averaging with neighbours brings nodes together.*"""

CODE = """def spread(
    models: np.ndarray,  # float (nodes,)
) -> float:
    "How far the models of nodes are apart, at most."
    return float(models.max() - models.min())"""

EXAMPLE = """graph = nx.path_graph(3)
W, start = gossip_matrix(graph), np.eye(len(graph))[-1]
after = [spread(np.linalg.matrix_power(W, rounds) @ start) for rounds in range(9)]
print(f"{after[0]:.3f} at first, {after[-1]:.3f} after 8 rounds")"""

PICTURE = """fig, ax = plt.subplots(figsize=(6, 3))
ax.plot(after, "o-", color=PALETTE["ours"])
ax.set(xlabel="rounds", ylabel="spread", title="Say here what the picture shows");"""

CHECK = """models = start  # round by round, without powers
for _ in range(8): models = W @ models
test_close(after[-1], max(models) - min(models))"""

TAKE_AWAY = """## What to take away

- Here stands the answer to the question, which a cell above checks.
- What it rests on.
- Where it ends."""

TRY_IT = """## Try it

- Change the graph to `nx.cycle_graph(3)`. What you will see: one round is enough.
- Change it to `nx.path_graph(6)`. What you will see: after 8 rounds the ends are still 0.294 apart.

Next: [all chapters]({up}/index.ipynb)."""


PARTS = ("base", "protocol", "accounting", "start", "noise", "learning", "evidence", "tools")


def check_name(nbs: Path, name: str) -> str:
    """The module of a chapter that does not exist yet: of the core, with a number, or without.

    Raises ValueError for any other name.
    """
    found = re.fullmatch(rf"({'|'.join(PARTS)})/(?:(\d\d)_|methods/)?([a-z][a-z0-9_]*)", name)
    if not found:
        expected = "a part and a name, such as noise/28_price, noise/methods/price or tools/price"
        raise ValueError(f"NAME={name!r}: expected {expected}")
    _, number, module = found.groups()
    if keyword.iskeyword(module):
        wrong = f"{module} is a word of Python; expected a name for a module"
        raise ValueError(f"NAME={name!r}: {wrong}")
    for there in sorted(nbs.glob("*/**/*.ipynb")):
        if number and there.stem[:2] == number:
            taken = f"chapter {number} is {there.name}; expected a new number"
            raise ValueError(f"NAME={name!r}: {taken}")
        if re.sub(r"^\d\d_", "", there.stem) == module:
            taken = f"{module} is {there.relative_to(nbs)}; expected a new name"
            raise ValueError(f"NAME={name!r}: {taken}")
    return re.sub(r"\d\d_", "", name).replace("/", ".")


def write_chapter(nbs: Path, name: str, title: str, question: str, export: str) -> Path:
    """Write the notebook `name` into its part of the folder `nbs`.

    With `export`, a module of its name is made of it. Raises ValueError before anything
    is written.
    """
    module = check_name(nbs, name)
    path = nbs / f"{name}.ipynb"
    question = question or "Which question does this chapter answer?"
    if not title.strip(): raise ValueError(f"TITLE={title!r}: expected the title of the chapter")
    if not question.endswith("?"):
        expected = "the question that the chapter answers, with its question mark"
        raise ValueError(f"QUESTION={question!r}: expected {expected}")
    if export not in ("", "yes"): raise ValueError(f"EXPORT={export!r}: expected yes, or nothing")
    exported = "#| exporti\n" if export else ""
    cells = [v4.new_markdown_cell(OPENING.format(title=title, question=question))]
    if export:
        cells.append(v4.new_code_cell(f"#| default_exp {module}"))
    cells += map(v4.new_code_cell, [f"{exported}import numpy as np", IMPORTS])
    cells.append(v4.new_markdown_cell(CLAIM))
    cells += map(v4.new_code_cell, [exported + CODE, EXAMPLE, PICTURE, CHECK])
    up = "/".join([".."] * name.count("/"))
    cells += map(v4.new_markdown_cell, [TAKE_AWAY, TRY_IT.format(up=up)])
    for number, cell in enumerate(cells):
        cell.id = f"{number:08x}"
    kernel = {"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(writes(v4.new_notebook(cells=cells, metadata=kernel)) + "\n")
    return path


def main(name: str, *rest: str) -> None:
    try:
        write_chapter(ROOT / "nbs", name, *rest)
    except ValueError as error:
        sys.exit(f"error: {error}")
    print(f"wrote nbs/{name}.ipynb. Write the chapter over it, then:\n"
          f"  make refresh NAME={name}   export it, run it, keep its outputs\n"
          f"  make contents              its row in the tables of nbs/index.ipynb or nbs/where.ipynb, and the README\n"
          f"  make test                  what has to pass")


if __name__ == "__main__":
    main(*sys.argv[1:])
