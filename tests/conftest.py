import json
from pathlib import Path

import matplotlib
import pytest
from hypothesis import settings

from mfdl.graphs import find_file

matplotlib.use("Agg")
settings.register_profile("mfdl", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("mfdl")

ROOT = Path(__file__).parent.parent
FIGURES = [path for path in sorted((ROOT / "figures").glob("*.ipynb")) if ".failed." not in path.name]


@pytest.fixture(scope="session")
def reference():
    """Squared sensitivities and earlier accounting on the Florentine graph, computed independently of this project by brute force."""
    return json.loads((Path(__file__).parent / "reference_pndp.json").read_text())


@pytest.fixture
def facebook_file():
    path = find_file("facebook_ego/414.edges")
    if path is None: pytest.skip("data set facebook_ego/414.edges is not on this machine: set MFDL_DATA to the folder that holds it")
    return path
