"""What a reader should not see in JupyterLab is noticed: a notebook for each fault, and one without."""
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

pytestmark = pytest.mark.browser
PICTURE = "import io\nfrom matplotlib.figure import Figure\nfrom IPython.display import Image\nfile = io.BytesIO()\nFigure(figsize=(1, 1)).savefig(file)\n"
FAULTS = {
    "error": (new_code_cell("1 / 0"), "ZeroDivisionError: division by zero"),
    "syntax": (new_code_cell("1 +"), "SyntaxError"),
    "formula without its end": (new_markdown_cell(r"Half of it: $\frac{$ is left."), "shows 0 of its 1 formulas"),
    "formula of two environments": (new_markdown_cell(r"$$\begin{align} a &= b \end{cases}$$"), "mathematics that cannot be read"),
    "unknown command": (new_markdown_cell(r"Here $\nosuchcommand{a}$ stands."), r"mathematics that cannot be read: \nosuchcommand"),
    "single dollar": (new_markdown_cell("It costs $5."), "shows a dollar sign"),
    "missing picture": (new_markdown_cell("![a picture](../figures/missing.png)"), "a picture that cannot be seen"),
    "picture of no bytes": (new_code_cell("from IPython.display import Image\nImage(b'nothing', format='png')"), "a picture that cannot be seen"),
    "missing page": (new_markdown_cell("[more](missing.ipynb)"), "links to nbs/missing.ipynb, which does not exist"),
}


def run(lab, *cells, **limits):
    kernel = {"kernelspec": {"name": "python3", "display_name": "python3", "language": "python"}}
    nbformat.write(new_notebook(cells=[new_markdown_cell("A formula, $x^2$."), *cells], metadata=kernel), lab.root / "nbs" / "tiny.ipynb")
    return lab.run("nbs/tiny.ipynb", **limits)


def test_a_notebook_without_faults(lab):
    cells = [new_markdown_cell(r"$$\frac{1}{2}$$ is $\tfrac12$, costs \$5, in code `$x`. [index](index.ipynb) ![a picture](../figures/story_florentine.png)"),
             new_code_cell(PICTURE + "Image(file.getvalue())"), new_code_cell(""), new_code_cell("6 * 7")]
    notebook, faults = run(lab, *cells)
    assert not faults
    assert notebook.cells[-1].outputs[0].data["text/plain"] == "42" and "image/png" in notebook.cells[2].outputs[0].data


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_noticed(lab, name):
    cell, message = FAULTS[name]
    _, faults = run(lab, cell, patience=2)
    assert len(faults) <= 2 and message in faults[0] and faults[0].startswith("nbs/tiny.ipynb, cell 1 "), faults


def test_what_comes_after_an_error_did_not_run(lab):
    assert "cell 2 did not run" in run(lab, new_code_cell("1 / 0"), new_code_cell("1"), patience=0)[1][1]


def test_what_takes_too_long_is_stopped(lab):
    with pytest.raises(Exception, match="not finished after 3 seconds"): run(lab, new_code_cell("import time; time.sleep(60)"), seconds=3)
    assert not run(lab, new_code_cell("1"))[1], "and the next notebook runs"
