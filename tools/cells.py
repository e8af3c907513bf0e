"""Read cells of the book and committed numbers, for the technical report: `make report`."""
import ast
import json
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from html import unescape
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent


def cell(target: str) -> dict:
    "The cell of a notebook that has an id or a tag, `part/chapter#cell`."
    name, _, wanted = target.partition("#")
    path = ROOT / "nbs" / f"{name}.ipynb"
    if not path.exists(): raise ValueError(f"{target}: there is no nbs/{name}.ipynb")
    for one in json.loads(path.read_text())["cells"]:
        if wanted in (one["id"], *one["metadata"].get("tags", [])):
            return one
    raise ValueError(f"{target}: nbs/{name}.ipynb has no cell with this id or tag")


def outputs(target: str, kind: str) -> list[str]:
    "What a cell shows, of a kind such as text/plain or image/png; never nothing."
    every = cell(target).get("outputs", [])
    data = [{"text/plain": one["text"]} if "text" in one else one.get("data", {}) for one in every]
    texts = ["".join(one[kind]) for one in data if kind in one]
    if not texts: raise ValueError(f"{target}: the cell has no output {kind}")
    return texts


def table(path: str) -> pd.DataFrame:
    "The numbers of a committed file."
    return pd.read_csv(ROOT / path)


def frame(target: str) -> pd.DataFrame:
    "The table that a cell shows; the names of its rows are the index."
    html = outputs(target, "text/html")[-1]
    rows = [
        [unescape(text) for text in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, re.S)]
        for row in re.findall(r"<tr.*?>(.*?)</tr>", html, re.S)]
    (_, *head), *body = rows
    if not any(body[0][1:]):  # the name of the index
        body = body[1:]
    names = [row[0] for row in body]
    return pd.DataFrame([row[1:] for row in body], names, head).apply(numeric)


def numeric(column: pd.Series) -> pd.Series:
    "A column as numbers, where it has nothing else."
    made = pd.to_numeric(column, errors="coerce")
    return column if made.isna().any() else made


def shown(target: str) -> object:
    "The Python value that a cell shows."
    text = outputs(target, "text/plain")[-1]
    return ast.literal_eval(re.sub(r"np\.\w+\((.*?)\)", r"\1", text))


def found(pattern: str, target: str) -> list:
    "Numbers in the groups of a pattern: each match in a page, or in what a cell or a figure's record prints, or its code."
    if target.endswith(".json"):
        cells = json.loads((ROOT / target).read_text())["cells"]
        texts = ["\n".join(line for one in cells for line in one["printed"])]
    elif "#" not in target:
        texts = [(ROOT / target).read_text()]
    else:
        texts = ["".join(cell(target)["source"])]
        if cell(target).get("outputs"):
            texts.insert(0, "".join(outputs(target, "text/plain")))
    for text in texts:
        if matches := re.findall(pattern, text):
            rows = [(one,) if isinstance(one, str) else one for one in matches]
            return [[ast.literal_eval(x.replace(",", "")) for x in row] for row in rows]
    raise ValueError(f"{target}: neither its code nor what it prints has {pattern!r}")


def down(x: float, digits: int) -> float:
    "A lower bound with so many decimals: never more than it is."
    return float(round_to(x, -digits, ROUND_FLOOR))


def up(x: float, digits: int) -> float:
    "An upper bound with so many decimals: never less than it is."
    return float(round_to(x, -digits, ROUND_CEILING))


def round_to(x: float, exponent: int, rounding: str) -> Decimal:
    "A multiple of a power of ten, by the shortest decimal number that stands for x."
    return Decimal(repr(float(x))).quantize(Decimal(1).scaleb(exponent), rounding)


def power_up(x: float) -> str:
    "An upper bound with one digit, in powers of ten."
    return power(float(round_to(x, Decimal(repr(float(x))).adjusted(), ROUND_CEILING)), 0)


def power(x: float, digits: int = 1) -> str:
    "A number in powers of ten, as a formula."
    mantissa, exponent = f"{x:.{digits}e}".split("e")
    return f"${mantissa} \\times 10^{{{int(exponent)}}}$"


def titled(path: Path) -> tuple[str, str]:
    "Number and title of a chapter; no number for what is no chapter."
    first = "".join(json.loads(path.read_text())["cells"][0]["source"])
    number = re.match(r"\d\d", path.name)
    return number[0] if number else "", re.match(r"# (.+)", first)[1]


def cut(text: str, options: str, target: str) -> str:
    "What stands from some words to others, both included; without headings."
    ends = dict(re.findall(r'(from|to) "(.*?)"', options))
    for words in ends.values():
        if words not in text: raise ValueError(f"{target}: the cell does not say {words!r}")
    text = text[text.index(ends["from"]):] if "from" in ends else text
    end = text.index(ends["to"]) + len(ends["to"]) if "to" in ends else len(text)
    return re.sub(r"^#+ .*\n", "", text[:end], flags=re.M)
