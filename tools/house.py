"""Measure the house: its size, its ladders of classes, the way of a call through its modules, and what a new room would touch.

These are measures, and no gates. `python tools/house.py` prints a table, and `python tools/house.py WHEN` also writes it into `benchmarks/house.csv`, in place of the rows of
that name, so that one table can hold what was before a change and what is after it.
"""
import ast
import csv
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # or threads that wait would count as seconds

import mfdl  # noqa: E402

PACKAGE = Path(mfdl.__file__).parent
TABLE = Path(__file__).parent.parent / "benchmarks" / "house.csv"
REPEATS = 3
KINDS = {  # names that stand for what exists already
    "trust model": ("PNDP", "SecureSum"), "batch scheme": ("PoissonParticipation", "BinsParticipation"),
    "conversion": ("rdp", "advantage"), "layer": ("Tanh", "GroupNorm"),
}
Row = tuple[str, float, str]  # what is measured, its value, and what it is about


def sources() -> dict[str, str]:
    """The modules of the package, without what nbdev writes for itself."""
    paths = (path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "_modidx.py")
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in paths}


def lines_of_code(source: str) -> int:
    """Lines that are no docstrings, no comments and not empty."""
    tree = ast.parse(source)
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]
    told = {line for node in strings for line in range(node.lineno, node.end_lineno + 1)}
    lines = enumerate(source.splitlines(), start=1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and i not in told for i, line in lines)


def size() -> Iterator[Row]:
    """How large the package is."""
    code = {name: lines_of_code(source) for name, source in sources().items()}
    longest = max(code, key=code.get)
    yield "modules", sum(count > 0 for count in code.values()), "that have any code"
    yield "lines", sum(len(source.splitlines()) for source in sources().values()), "of all modules"
    yield "lines of code", sum(code.values()), "without docstrings and comments"
    yield "longest module", code[longest], f"{longest}, lines of code"


def modules() -> list:
    """All modules, imported."""
    return [importlib.import_module(one.name) for one in pkgutil.walk_packages(mfdl.__path__, "mfdl.") if not one.ispkg and "._" not in one.name]


def names() -> Iterator[Row]:
    """How many names are public."""
    yield "names of the one import", len(mfdl.__all__), "mfdl.__all__"
    yield "public names", sum(len(module.__all__) for module in modules()), "in __all__ of all modules"


def ladder(one: type, within: set[type]) -> list[str]:
    """The longest chain of classes from one to a base, of those within a set."""
    above = [ladder(base, within) for base in one.__bases__ if base in within]
    return [one.__name__, *max(above, key=len, default=[])]


def rungs(within: set[type]) -> list[str]:
    """Classes that have one subclass only, where one of both is private."""
    below = {one: [other for other in within if one in other.__bases__] for one in within}
    return sorted(one.__name__ for one, others in below.items() if len(others) == 1 and any(it.__name__.startswith("_") for it in (one, *others)))


def classes() -> Iterator[Row]:
    """How deep classes are stacked."""
    found = {thing for module in modules() for thing in vars(module).values() if isinstance(thing, type) and thing.__module__ == module.__name__}
    ladders = sorted((ladder(one, found) for one in found), key=lambda one: (-len(one), one))
    yield "classes", len(found), f"of which {sum(one.__name__.startswith('_') for one in found)} are private"
    yield "deepest ladder of classes", len(ladders[0]), " < ".join(ladders[0])
    yield "ladders of more than three", sum(len(one) > 3 for one in ladders), "classes with at least three others above each other"
    yield "classes with one subclass only", len(rungs(found)), f"where one of both is private: {' '.join(rungs(found))}"


def calls() -> dict[str, Callable[[], object]]:
    """What a user does, from the graph on, on the Florentine families."""
    import torch
    graph, scheme = mfdl.load_graph("florentine"), mfdl.Participation.cyclic(2, 4)
    X = torch.linspace(-1, 1, 480).reshape(120, 4).numpy()
    data = X, X[:, 0], X[:20], X[:20, 0]

    def network(): return mfdl.gossip_matrix(graph)
    def asked(trust, **options): return mfdl.account(mfdl.dp_dsgd(network(), scheme.T, graph.nodes), trust, scheme, **options)

    return {
        "account, LDP": lambda: asked(mfdl.LDP()),
        "account, PNDP": lambda: asked(mfdl.PNDP.each(graph.nodes)),
        "account, PNDP, updates": lambda: asked(mfdl.PNDP.each(list(graph.nodes)[:3]), updates=mfdl.Lipschitz(1)),
        "which_noise": lambda: mfdl.which_noise(network(), scheme, 3.0, 1e-5),
        "train": lambda: mfdl.train(lambda: torch.nn.Linear(4, 1), data, graph, 5.0, 1e-5, participation=scheme, secret=0, progress=False),
    }


def trace(call: Callable[[], object], folder: Path) -> dict[int, list[tuple[str, str]]]:
    """The modules and functions in a folder that a call goes through, in order, for each thread; a generator counts each time it goes on."""
    found: dict[int, list[tuple[str, str]]] = {}

    def note(frame, event, argument):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(folder)) or code.co_name.startswith("<"): return
        found.setdefault(threading.get_ident(), []).append((code.co_filename, code.co_name))

    threading.setprofile(note)
    sys.setprofile(note)
    try: call()
    finally: sys.setprofile(None), threading.setprofile(None)
    return found


def way(name: str, call: Callable[[], object]) -> Iterator[Row]:
    """How a call goes through the house, once all is imported."""
    call()
    threads = trace(call, PACKAGE).values()
    steps = [step for thread in threads for step in thread]
    changes = sum(one[0] != other[0] for thread in threads for one, other in zip(thread, thread[1:], strict=False))
    checks = Counter(function for _, function in steps if function.startswith("check_"))
    yield f"{name}: calls", len(steps), "of functions of the package"
    yield f"{name}: functions", len(set(steps)), "that differ"
    yield f"{name}: modules", len({module for module, _ in steps}), "that they are in"
    yield f"{name}: changes of module", changes, "from one call to the next"
    yield f"{name}: checks of W", checks["check_gossip"], "calls of check_gossip"
    yield f"{name}: checks", checks.total(), "calls of check_*: " + ", ".join(f"{check} {count}" for check, count in checks.most_common(4))


def seconds(call: Callable[[], object]) -> float:
    """Seconds of a processor, the least of some repetitions."""
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        call()
        taken.append(time.process_time() - began)
    return round(min(taken), 4)


def imported(statement: str) -> float:
    """Seconds of a processor that an import takes in a process of its own."""
    program = f"import time; began = time.process_time(); {statement}; print(time.process_time() - began)"
    return round(min(float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(REPEATS)), 4)


def touched() -> Iterator[Row]:
    """In how many modules what exists is named, and so where something new of its kind would be."""
    trees = {name: ast.parse(source) for name, source in sources().items()}

    def named(word: str) -> set[str]:
        def tells(node): return word in (getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "name", None), getattr(node, "value", None))
        return {name for name, tree in trees.items() if any(tells(node) for node in ast.walk(tree))}

    for kind, words in KINDS.items():
        for word in words: yield f"modules that name a {kind}", len(named(word)), f"{word}: {' '.join(sorted(named(word)))}"


def signatures() -> Iterator[Row]:
    """The longest signatures that help() shows."""
    shown = {name: str(inspect.signature(thing)) for name in mfdl.__all__ if callable(thing := getattr(mfdl, name))}
    for name in sorted(shown, key=lambda one: -len(shown[one]))[:5]:
        yield "longest signatures", len(shown[name]), f"{name}, {len(inspect.signature(getattr(mfdl, name)).parameters)} parameters; characters"


def measures() -> Iterator[Row]:
    """All measures."""
    yield from (*size(), *names(), *classes())
    for name, call in calls().items():
        yield from way(name, call)
        yield f"{name}: seconds", seconds(call), "of a processor"
    yield "import: seconds", imported("import mfdl"), "import mfdl"
    yield "import: seconds", imported("from mfdl import *"), "from mfdl import *"
    yield from (*touched(), *signatures())


def main(when: str | None) -> None:
    """Print all measures, and write them into the table if they have a name."""
    found = list(measures())
    for what, value, about in found: print(f"{what:40} {value:>10}  {about[:180]}")
    if when is None: return
    kept = [row for row in csv.reader(TABLE.open())][1:] if TABLE.exists() else []
    with TABLE.open("w", newline="") as file:
        rows = [row for row in kept if row[0] != when] + [[when, *row] for row in found]
        csv.writer(file, lineterminator="\n").writerows([["when", "measure", "value", "about"], *rows])


if __name__ == "__main__": main(sys.argv[1] if len(sys.argv) > 1 else None)
