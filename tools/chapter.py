"""Write the skeleton of a new chapter: `make chapter NAME=30_explorer TITLE="Try it yourself" QUESTION="What changes when a node moves?" MODULE=explorer`."""
import keyword
import re
import sys
from pathlib import Path

from nbformat import v4, writes

ROOT = Path(__file__).parent.parent

OPENING = """# {title}

> {question}

Say in plain words who asks this, and why. Then the smallest example that shows the point, before any formula: here three nodes on a line, who start far apart."""

IMPORTS = """import matplotlib.pyplot as plt
import networkx as nx
from fastcore.test import test_close

from mfdl.figures import PALETTE, STYLE
from mfdl.gossip import gossip_matrix

plt.rcParams.update(STYLE)"""

CLAIM = """A claim, in words or as an equation; the code that is the claim; its value; a check that does not use that code.

The claim here: *averaging with neighbours brings nodes together.*"""

CODE = """def spread(
    models: np.ndarray,  # float (nodes,)
) -> float:
    "How far the models of nodes are apart, at most (chapter {number})."
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

- The answer to the question, in one line.
- What it rests on.
- Where it ends."""

TRY_IT = """## Try it

- Change the graph to `nx.cycle_graph(3)`. What you will see: one round is enough.
- Change it to `nx.path_graph(6)`. What you will see: after 8 rounds the ends are still 0.294 apart.

Next: [all chapters](index.ipynb)."""


def write_chapter(nbs: Path, name: str, title: str, question: str, module: str) -> Path:
    "Write the notebook `name` into the folder `nbs`; with a module, what it defines is exported there. Raises ValueError before anything is written."
    path, question = nbs / f"{name}.ipynb", question or "Which question does this chapter answer?"
    if not re.fullmatch(r"\d\d_[a-z][a-z0-9_]*", name): raise ValueError(f"NAME={name!r}: expected two digits, an underscore and lower-case letters, such as 30_explorer")
    if path.exists(): raise ValueError(f"NAME={name!r}: {path.name} exists; expected a new name")
    if not title.strip(): raise ValueError(f"TITLE={title!r}: expected the title of the chapter")
    if not question.endswith("?"): raise ValueError(f"QUESTION={question!r}: expected the question that the chapter answers, with its question mark")
    if module and (not re.fullmatch(r"[a-z][a-z0-9_]*", module) or keyword.iskeyword(module)):
        raise ValueError(f"MODULE={module!r}: expected a name in lower-case letters, such as explorer")
    if module and (nbs.parent / "mfdl" / f"{module}.py").exists(): raise ValueError(f"MODULE={module!r}: mfdl.{module} belongs to another chapter; expected a new name")
    exported = "#| exports\n" if module else ""
    cells = [v4.new_markdown_cell(OPENING.format(title=title, question=question))]
    if module: cells.append(v4.new_code_cell(f"#| default_exp {module}"))
    cells += map(v4.new_code_cell, [f"{exported}import numpy as np", IMPORTS])
    cells += [v4.new_markdown_cell(CLAIM), *map(v4.new_code_cell, [exported + CODE.format(number=name[:2]), EXAMPLE, PICTURE, CHECK])]
    cells += map(v4.new_markdown_cell, [TAKE_AWAY, TRY_IT])
    for number, cell in enumerate(cells): cell.id = f"{number:08x}"
    kernel = {"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"}}
    path.write_text(writes(v4.new_notebook(cells=cells, metadata=kernel)) + "\n")
    return path


def main(name: str, *rest: str) -> None:
    try: path = write_chapter(ROOT / "nbs", name, *rest)
    except ValueError as error: sys.exit(f"error: {error}")
    print(f"wrote nbs/{path.name}. Write the chapter over it, then:\n"
          f"  make refresh NAME={name}   export it, run it, keep its outputs\n"
          f"  nbs/index.ipynb            a row for it in the table of chapters, then make readme\n"
          f"  make test                  what has to pass")


if __name__ == "__main__": main(*sys.argv[1:])
