"""Write the technical report from docs/report.md and from cells of the book: `make report`.

The outline is Markdown in which Python cells are run, not shown. `{value EXPRESSION}` is
what they computed, and a bound is rounded to its safe side by `down` or `up`. A paragraph that begins with a directive stands for something else:

    {include} part/chapter#cell from "first words" to "last words"    text of a cell
    {box} part/chapter#cell       its displayed equation, with the paragraph as its caption
    {figure} part/chapter#cell    its picture, or that of a file; wide, width=0.7
    {table} EXPRESSION            a frame that was computed; wide, layout=llr

What is wide reaches across both columns. Digits in our own prose that no placeholder put
there are found by tests/book/test_report.py.
"""
import base64
import re
import shutil
import subprocess
import sys
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path

import pandas as pd
from cells import ROOT, cell, cut, down, found, frame, outputs, power, power_up, shown, table, titled, up

OUTLINE = ROOT / "docs" / "report.md"
MADE = ROOT / "_report"
NEEDED = {"pandoc": "pandoc", "pdflatex": "texlive-latex-extra texlive-fonts-recommended lmodern"}
OPTIONS = r"(.*?)((?: wide| width=\S+| layout=\S+| from \".*| to \".*)*)$"
DIRECTIVE = r"^\{(include|box|figure|table)\} (.+)((?:\n.+)*)"


def filled(text: str, names: dict) -> str:
    "Text with values in place of their expressions; a ValueError for what has none."
    def value(match: re.Match) -> str:
        try:
            made = str(eval(f"f'''{{{match[1]}}}'''", names))
        except Exception as error:
            raise ValueError(f"{match[0]}: {type(error).__name__}: {error}") from error
        if re.search(r"^$|\b(nan|None)\b", made): raise ValueError(f"{match[0]} is {made!r}")
        return made
    return re.sub(r"\{value ([^{}]+)\}", value, text)


def linked(text: str, folder: Path, chapters: dict) -> str:
    "Links to notebooks become their titles, or get the number of the chapter."
    def link(match: re.Match) -> str:
        path = (folder / match[2]).resolve()
        if not path.exists(): raise ValueError(f"{match[0]}: there is no such notebook")
        number, title = titled(path)
        chapters[path.relative_to(ROOT / "nbs").as_posix()] = (number, title)
        if not match[1]:
            return f"*{title}*" + f", chapter {number}" * bool(number)
        return match[1] + f" (chapter {number})" * (bool(number) and number not in match[1])
    return re.sub(r"\[([^\]]*)\]\(([^)#\s]+\.ipynb)(?:#[^)\s]*)?\)", link, text)


def latex(text: object) -> str:
    "Text in a cell of a table; formulas stay."
    parts = re.split(r"(\$.*?\$)", str(text))
    plain = [re.sub(r"([&%_#])", r"\\\1", one).replace("^", r"\^{}") for one in parts[::2]]
    return "".join(map("".join, zip_longest(plain, parts[1::2], fillvalue="")))


def even(column: pd.Series) -> pd.Series:
    "A column of numbers, with as many decimals as the longest needs."
    if column.dtype != float:
        return column
    digits = max(len(str(x).partition(".")[2]) for x in column)
    return column.map(lambda x: f"{x:.{digits}f}")


def tabular(made: pd.DataFrame, layout: str) -> str:
    "A table in LaTeX, with the names of its rows in the first column."
    made = made.rename_axis(made.index.name or "").reset_index().apply(even)
    rows = [made.columns, *made.to_numpy(dtype=object)]
    head, *body = [" & ".join(map(latex, row)) + r" \\" for row in rows]
    layout = layout or "l" + "r" * (made.shape[1] - 1)
    return "\n".join([
        r"\begin{adjustbox}{max width=\linewidth}%", rf"\begin{{tabular}}{{@{{}}{layout}@{{}}}}",
        r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}\end{adjustbox}"])


def floating(kind: str, content: str, caption: str, wide: bool) -> str:
    "Something that LaTeX puts where there is room, across both columns if it is wide."
    kind += "*" * wide
    raw = "```{{=latex}}\n{}\n```"
    begin = raw.format(rf"\begin{{{kind}}}[t]\centering\footnotesize")
    inside = [raw.format(content), "`\\caption{`{=latex}" + caption + "`}`{=latex}"]
    if kind.startswith("table"):
        inside.reverse()
    return "\n\n".join([begin, *inside, raw.format(rf"\end{{{kind}}}")])


def picture(target: str, folder: Path) -> Path:
    "The file of a picture: of a cell, or one that is committed."
    if target.endswith(".png"):
        if not (ROOT / target).exists(): raise ValueError(f"{target}: there is no such picture")
        return ROOT / target
    path = folder / f"{target.partition('#')[2]}.png"
    path.write_bytes(base64.b64decode(outputs(target, "image/png")[0]))
    return path


def placed(match: re.Match, names: dict, folder: Path) -> str:
    "What a directive stands for, as Markdown with links as they are in the book."
    kind, line, caption = match.groups()
    what, options = re.match(OPTIONS, line).groups()
    wide = " wide" in options
    if kind == "table":
        layout = re.search(r"layout=(\S+)", options)
        content = tabular(eval(what, names), layout[1] if layout else "")
        return floating("table", content, caption.strip(), wide)
    if kind == "figure":
        width = re.search(r"width=(\S+)", options)
        content = rf"\includegraphics[width={width[1] if width else ''}\linewidth]"
        content += f"{{{picture(what, folder)}}}"
        return floating("figure", content, caption.strip(), wide)
    text = "".join(cell(what)["source"])
    if kind == "include":
        included = cut(text, options, what)
        if "\n|" in included: raise ValueError(f"{what}: a column has no room for a table")
        return included
    equation = re.search(r"\$\$(.*?)\$\$", text, re.S)
    if equation is None: raise ValueError(f"{what}: the cell has no displayed equation")
    content = r"\begin{adjustbox}{max width=\linewidth}$\displaystyle " + equation[1].strip()
    return floating("figure", content + r"$\end{adjustbox}", caption.strip(), wide)


def document(outline: str, folder: Path) -> str:
    "The whole report in Markdown: cells run, values filled in, directives replaced."
    chapters: dict[str, tuple[str, str]] = {}
    computing = (table, frame, shown, found, power, power_up, down, up)
    names = {one.__name__: one for one in computing} | {"pd": pd}
    names["chapters"] = lambda: pd.DataFrame(dict(sorted(filter(itemgetter(0), chapters.values()))), ["chapter"]).T
    code = r"^```python\n(.*?)^```\n"
    for one in re.findall(code, outline, re.M | re.S):
        exec(one, names)
    written = []
    for block in re.split(r"\n\n+", re.sub(code, "", outline, flags=re.M | re.S)):
        block = filled(block, names)
        directive = re.match(DIRECTIVE, block)
        home = OUTLINE.parent
        if directive:
            block = placed(directive, names, folder)
            if source := re.match(r"(\S+)#", directive[2]):
                home = (ROOT / "nbs" / source[1]).parent
                linked(f"[]({ROOT / 'nbs' / source[1]}.ipynb)", home, chapters)
        written.append(linked(block, home, chapters))
    return "\n\n".join(written)


def build(folder: Path) -> Path:
    "The report as PDF, in a folder that holds what it is made from."
    missing = [package for program, package in NEEDED.items() if not shutil.which(program)]
    if missing:
        sys.exit(f"the report needs {' and '.join(NEEDED)}: apt-get install {' '.join(missing)}")
    folder.mkdir(exist_ok=True)
    (folder / "report.md").write_text(document(OUTLINE.read_text(), folder))
    template = OUTLINE.with_suffix(".tex")
    pandoc = ["pandoc", "report.md", "-t", "latex", "-N", "--template", str(template)]
    made = subprocess.run(pandoc, cwd=folder, check=True, capture_output=True, text=True).stdout
    formula = r"(?:(?<=[\w,:)])\n\n)?(?<!\\)\\\[(.*?)\\\](?:\n\n(?=[a-z]|\\emph))?"
    fitted = re.sub(formula, r"\n\\fitted{\1}\n", made, flags=re.S)
    (folder / "report.tex").write_text(fitted)
    for _ in range(2):
        tex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
        run = subprocess.run(tex, cwd=folder, capture_output=True, text=True, timeout=300)
        if run.returncode:
            sys.exit(f"pdflatex failed, see {folder / 'report.log'}\n{run.stdout[-1500:]}")
    return folder / "report.pdf"


if __name__ == "__main__":
    try:
        print(f"wrote {build(MADE).relative_to(ROOT)}")
    except ValueError as error:
        sys.exit(f"error: {error}")
