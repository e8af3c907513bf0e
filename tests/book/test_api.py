"""What is public says what it does, in which shapes, where it comes from, and shows it."""
import doctest
import importlib
import inspect
import re
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from conftest import CORE, MODULES, defined

import mfdl

PAPER = r"\b(?:U|C), (?:Theorem|Lemma|Proposition|Corollary|Definition|Remark|Eq\.|Eqs\.|Appendix|Algorithm|Figure|Table|Section)\s?\S"
SOURCE = rf"{PAPER}|et al\.,? \d{{4}}|[A-Z]\w+(?: (?:and|&) [A-Z]\w+)?,? (?:19|20)\d\d|\bchapter \d\d\b|`[a-z]+\.(?:methods\.)?[a-z_]+`|arXiv \d{4}\.\d{5}"
ARRAY = r"ndarray|Tensor|csr_array|Floats|Ints|Bools|ArrayLike"
SHAPE = r"\(\s*[\w.*+/^-]+(?:\s+[\w*+/-]+)*\s*,[^()]*\)|scalar|same shape|any shape"  # (n, n), (T,), (k T, m)


PUBLIC = {name: getattr(mfdl, name) for name in mfdl.__all__}


def signature_source(thing):
    """The text of the signature with its comments: up to the docstring, or for a class all of its head."""
    source = inspect.getsource(thing)
    return source if inspect.isclass(thing) else source.split('"""')[0].split('\n    "')[0]


def missing(thing):
    """What the documentation of one public function or class lacks."""
    doc = inspect.cleandoc(thing.__doc__ or "")
    lacks = [] if doc and not doc.startswith(f"{thing.__name__}(") else ["a docstring"]
    if not re.match(r"[^\n]*\w[^\n]*(?:\n[^\n]+)*?[.?:)]\s*(?:\n|$)", doc): lacks.append("a first sentence with a full stop")
    if not re.search(SOURCE, doc): lacks.append("a source: paper and number, or 'chapter NN'")
    if inspect.isclass(thing): annotated = [str(f.type) for f in fields(thing)] if is_dataclass(thing) else []
    else:
        signature = inspect.signature(thing)
        lacks += [f"an annotation of {p.name}" for p in signature.parameters.values() if p.annotation is p.empty]
        if signature.return_annotation is signature.empty: lacks.append("an annotation of the result")
        annotated = [str(p.annotation) for p in signature.parameters.values()] + [str(signature.return_annotation)]
    arrays = sum(bool(re.search(ARRAY, text)) for text in annotated)
    shapes = len(re.findall(SHAPE, doc + "\n".join(re.findall(r"#(.*)", signature_source(thing)))))
    if shapes < min(arrays, 1 if inspect.isclass(thing) else arrays): lacks.append(f"shapes of {arrays} arrays (found {shapes})")
    return lacks


def test_public_names_are_documented():
    poor = {name: lacks for name, thing in PUBLIC.items() if (lacks := missing(thing))}
    assert not poor, "\n".join(f"{name} lacks {', '.join(lacks)}" for name, lacks in poor.items())


def test_what_documentation_lacks_is_noticed():
    def poor(x: np.ndarray, y) -> int:
        """Return"""
    def good(x: np.ndarray) -> int:
        """Return how many rows (n, d) has (chapter 10)."""
    assert len(missing(poor)) == 4 and not missing(good)


def test_chapters_that_docstrings_name_exist():
    known = {*MODULES} | {path.name[:2] for path in CORE}
    named = {name: re.findall(r"\bchapter (\d\d)\b|`(\w+\.methods\.\w+)`", thing.__doc__ or "") for name, thing in PUBLIC.items()}
    wrong = {name: found for name, pairs in named.items() if (found := {one for pair in pairs for one in pair if one} - known)}
    assert not wrong


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_of_public_names_are_true(name):
    """Each has one, and prints what it says; what needs other processes or packages is only read."""
    examples = doctest.DocTestParser().get_doctest(inspect.cleandoc(PUBLIC[name].__doc__), {}, name, None, 0)
    assert examples.examples
    assert not doctest.DocTestRunner().run(examples).failed


@pytest.mark.parametrize("module", MODULES)
def test_modules_list_what_is_public(module):
    """Beside it only constants: cells without a public name are exported with `exporti`."""
    listed = importlib.import_module(f"mfdl.{module}").__all__
    assert {name for name in defined(module) if name in listed} <= set(PUBLIC)


def test_what_is_private_says_what_it_does():
    """In a sentence, before anything else."""
    for module in MODULES:
        loaded = importlib.import_module(f"mfdl.{module}")
        for name in defined(module):
            thing = getattr(loaded, name)
            if inspect.isfunction(thing): assert re.match(r"[^\n]*\w[^\n]*(\n[^\n]+)*[.?:)]", thing.__doc__ or ""), f"mfdl.{module}.{name}"
