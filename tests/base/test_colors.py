"""A method has one colour, which tells it from others."""
from itertools import combinations

import pytest

from mfdl.base.figures import LEAST_DISTANCE, METHOD_COLORS, METHOD_NAMES, STYLE, color_distance, method_color, method_name


def alike(found):
    """Pairs of methods with colours that some readers cannot tell apart."""
    return [pair for pair in combinations(sorted(found), 2) if color_distance(*map(method_color, pair)) < LEAST_DISTANCE]


def test_methods_without_a_color_are_refused():
    with pytest.raises(ValueError, match="method is 'anything': expected one of no noise, independent"): method_color("anything")


def test_names_of_code_and_variants_have_the_color_of_their_method():
    assert method_color("CorN, far ahead") == METHOD_COLORS["CorN"] == method_color("corn")
    assert method_name("mafalda") == "MAFALDA" and set(METHOD_NAMES.values()) >= {"MAFALDA", "CorN", "DECOR"}


def test_colors_of_methods_can_be_told_apart():
    """Two that no picture shows side by side are the exception."""
    assert alike(METHOD_COLORS) == [("AntiPGD", "CorN")]


def test_distance_of_colors():
    assert color_distance("#009E73", "#009E73") == 0 and color_distance("#000000", "#FFFFFF") == pytest.approx(100, abs=0.01)
    assert color_distance("#FF0000", "#00FF00") < color_distance("#0000FF", "#FFFF00")  # red and green, to who sees them alike


def test_pictures_are_sharp():
    figure = pytest.importorskip("matplotlib.pyplot")
    with figure.rc_context(STYLE): assert figure.figure(figsize=(1, 1)).dpi >= 110
    figure.close("all")
