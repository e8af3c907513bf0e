"""What a reader should not see in JupyterLab is noticed."""
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

pytestmark = [pytest.mark.browser, pytest.mark.nightly]
PICTURE = "import io\nfrom matplotlib.figure import Figure\nfrom IPython.display import Image\nfile = io.BytesIO()\nFigure(figsize=(1, 1)).savefig(file)\nImage(file.getvalue())"
THROW = "from IPython.display import HTML\nHTML('<script>setTimeout(() => { throw Error(\"thrown\") })</script>')"
FAULTS = [  # a cell, and all that is said of it
    (new_markdown_cell(r"Half of it: $\frac{$ is left."), ["shows 0 of its 1 formulas as mathematics", "shows a dollar sign where mathematics should be"]),
    (new_markdown_cell(r"$$\begin{align} a &= b \end{cases}$$"), ["has mathematics that cannot be read: "]),
    (new_markdown_cell(r"Here $\nosuchcommand{a}$ stands."), [r"has mathematics that cannot be read: \nosuchcommand"]),
    (new_markdown_cell("It costs $5."), ["shows a dollar sign where mathematics should be"]),
    (new_markdown_cell("![a picture](../figures/missing.png)"), ["has a picture that cannot be seen: http"]),
    (new_code_cell("from IPython.display import Image\nImage(b'nothing', format='png')"), ["has a picture that cannot be seen: data:image/png"]),
    (new_code_cell("from IPython.display import HTML\nHTML('Loading widget...')"), ["has a widget that is not shown"]),
    (new_markdown_cell("[more](missing.ipynb)"), ["links to nbs/missing.ipynb, which does not exist"]),
    (new_code_cell("1 / 0"), ["ZeroDivisionError: division by zero"]),
    (new_code_cell("1"), ["has not run"]),
]


def run(lab, *cells, **limits):
    kernel = {"kernelspec": {"name": "python3", "display_name": "python3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), lab.root / "nbs" / "tiny.ipynb")
    return lab.run("nbs/tiny.ipynb", **limits)


def test_a_notebook_without_faults(lab):
    cells = [new_markdown_cell(r"$$\frac{1}{2}$$ is $\tfrac12$, costs \$5, in code `$x`. [index](index.ipynb) ![a picture](../figures/story_florentine.png)"),
             new_code_cell(PICTURE), new_code_cell(""), new_code_cell("6 * 7")]
    notebook, faults = run(lab, *cells)
    assert not faults
    assert notebook.cells[-1].outputs[0].data["text/plain"] == "42" and "image/png" in notebook.cells[1].outputs[0].data


def test_every_fault_is_noticed(lab):
    _, faults = run(lab, *(cell for cell, _ in FAULTS), patience=3)
    expected = [f"nbs/tiny.ipynb, cell {i} {fault}" for i, (_, said) in enumerate(FAULTS) for fault in said]
    assert all(fault.startswith(what) for fault, what in zip(faults, expected, strict=True)), faults
    assert all(Path(fault.split("; see ")[1]).stat().st_size for fault in faults)


def test_what_a_page_does_not_catch_is_reported(lab):
    assert run(lab, new_code_cell(THROW), patience=1)[1] == ["uncaught in the page: thrown"]


def test_what_takes_too_long_is_stopped(lab):
    _, (late, where) = run(lab, new_code_cell("import time; time.sleep(60)"), seconds=2)
    assert late == "nbs/tiny.ipynb has not finished after 2 seconds" and where.startswith("nbs/tiny.ipynb, cell 0 has not run; see ")
    assert not run(lab, new_code_cell("1"))[1], "the next notebook runs"
