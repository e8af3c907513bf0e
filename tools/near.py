"""Say that there is no notebook of a name, and which are called nearly so: used by `make refresh NAME=...`."""
import sys
from difflib import get_close_matches
from pathlib import Path

NOTEBOOKS = Path("nbs")


def near(name: str) -> list[str]:
    """Names of notebooks that are nearest to one: whole, or by their last part."""
    paths = [path.relative_to(NOTEBOOKS) for path in NOTEBOOKS.glob("**/[!.]*.ipynb")]
    names = sorted(path.with_suffix("").as_posix() for path in paths)
    last = {one.rpartition("/")[2].lstrip("0123456789_"): one for one in names}
    wanted = name.removeprefix("nbs/").removesuffix(".ipynb")
    words = get_close_matches(wanted.rpartition("/")[2].lstrip("0123456789_"), last, cutoff=0.6)
    found = [last[word] for word in words] + get_close_matches(wanted, names, cutoff=0.8)
    return list(dict.fromkeys(found))[:3]


if __name__ == "__main__":
    found = near(sys.argv[1])
    expected = "expected a part and a notebook, as ls nbs/*/*.ipynb shows them"
    if found:
        expected = f"did you mean {' or '.join(found)}?"
    sys.exit(f"NAME={sys.argv[1]}: there is no nbs/{sys.argv[1]}.ipynb; {expected}")
