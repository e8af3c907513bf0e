"""Data sets against their published descriptions, and partitions against the participation that they promise."""
import gzip
import io
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mfdl.base.downloads import find_file, read_bytes
from mfdl.learning.data import Batches, cut, round_robin
from mfdl.learning.methods.data_sets import as_dataset, housing_table, load_data
from mfdl.learning.methods.dealing import by_group, dirichlet

FILES = {"housing": "california_housing/cal_housing.csv", "houses": "california_housing/cal_housing.csv", "a9a": "a9a/a9a.t", "mnist": "mnist/t10k-labels-idx1-ubyte",
         "emnist": "emnist_byclass_test/emnist-byclass-test-images-idx3-ubyte"}


def load(name):
    if name in FILES and find_file(FILES[name]) is None: pytest.skip(f"data set {name} is not on this machine: set MFDL_DATA to the folder that holds {FILES[name]}")
    return load_data(name)


@pytest.mark.parametrize("name, shape, tested, classes", [
    ("digits", (1437, 64), 360, 10), ("diabetes", (353, 10), 89, None), ("housing", (16512, 8), 4128, None), ("houses", (16512, 8), 4128, 2), ("a9a", (32561, 123), 16281, 2),
    ("mnist", (60000, 1, 28, 28), 10000, 10), ("emnist", (93058, 1, 28, 28), 23265, 62),
])
def test_data_sets(name, shape, tested, classes):
    found = load(name)
    assert found.X.shape == shape and len(found.y) == shape[0] and len(found.y_test) == len(found.X_test) == tested and found.classes == classes
    assert found.X.dtype == found.X_test.dtype == np.float32 and np.isfinite(found.X).all() and found.y.dtype == (np.int64 if classes else np.float32)
    again = load(name)
    np.testing.assert_array_equal(found.X[:100], again.X[:100])


def test_housing_is_scikit_learns_view():
    """First row, mean target and class counts as in the descriptions of both views."""
    load("housing")
    t = housing_table()
    assert t.median_house_value.mean() == pytest.approx(206855.8169, abs=1e-4) and t.median_income.mean() == pytest.approx(3.8707, abs=1e-4)
    found = load("housing")
    every = np.concatenate([found.y, found.y_test])
    assert np.isclose(every, 4.526).any() and every.mean() == pytest.approx(2.068558, abs=1e-5)
    assert np.abs(found.X.mean(axis=0)).max() < 1e-4 and np.allclose(found.X.std(axis=0), 1, atol=1e-4)
    east = load("houses")
    assert np.bincount(np.concatenate([east.y, east.y_test])).tolist() == [11726, 8914]


def test_a9a_and_writers():
    found = load("a9a")
    assert np.bincount(found.y).tolist() == [24720, 7841] and np.bincount(found.y_test).tolist() == [12435, 3846]
    assert found.X.sum() == 451592 and set(np.unique(found.X)) == {0, 1}
    writers = load("mnist").groups
    counts = np.unique(writers, return_counts=True)[1]
    assert len(counts) == 539 and counts.min() == 19 and counts.max() == 131
    holdings = by_group(writers, 15, 10)
    assert all(len(np.unique(writers[held])) == 10 for held in holdings)
    with pytest.raises(ValueError, match="need 740 groups: there are 539"): by_group(writers, 148, 5)


def test_damaged_and_missing_data(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="did you mean"): load_data("digit")
    (tmp_path / "cal_housing.csv.gz").write_bytes(gzip.compress(b"longitude\n1\n"))
    with pytest.raises(ValueError, match="damaged or changed"): load_data("housing", tmp_path / "cal_housing.csv.gz")
    monkeypatch.setenv("MFDL_DATA", str(tmp_path / "none"))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: tmp_path / "cache")
    def offline(*_, **__): raise ConnectionError("no network")
    monkeypatch.setattr("pooch.retrieve", offline)
    for name, wanted in (("housing", "cal_housing.csv"), ("a9a", "a9a/a9a"), ("mnist", "train-images")):
        with pytest.raises(FileNotFoundError, match=f"{wanted}.*could not be downloaded.*MFDL_DATA"): load_data(name)


def test_downloads_are_unpacked_checked_and_kept(tmp_path, monkeypatch):
    """From a file as the owner publishes it; here a local copy."""
    path = find_file(FILES["mnist"])
    if path is None: pytest.skip("MNIST is not on this machine")
    folder, cache, fetched = path.parent.parent, tmp_path / "cache", []
    archives = {p.name.removesuffix(".gz"): p for p in [*(folder / "mnist").iterdir(), *(folder / "qmnist_writers").iterdir()]}
    monkeypatch.setenv("MFDL_DATA", str(tmp_path / "none"))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: cache)
    monkeypatch.setattr("pooch.retrieve", lambda url, fname, **_: fetched.append(url) or str(archives[fname.removesuffix(".gz")]))
    assert load_data("mnist").X.shape == (60000, 1, 28, 28) and len(fetched) == 5
    load_data("mnist")
    assert len(fetched) == 5 and not list(cache.rglob("*.part"))


@pytest.mark.nightly
def test_emnist_is_taken_out_of_its_archive_and_turned(tmp_path, monkeypatch):
    """As its owner publishes it: both files gzipped, in a folder of one zip archive, images with rows as columns."""
    found, archive = load("emnist"), tmp_path / "gzip.zip"
    images = find_file(FILES["emnist"])
    content = {images.name.removesuffix(".gz"): read_bytes(images)}
    labels = images.name.replace("images-idx3", "labels-idx1")
    content[labels.removesuffix(".gz")] = read_bytes(images.with_name(labels))
    with zipfile.ZipFile(archive, "w") as whole:
        for name, plain in content.items():
            turned = plain[:16] + np.frombuffer(plain, np.uint8, offset=16).reshape(-1, 28, 28).swapaxes(1, 2).tobytes() if "images" in name else plain
            whole.writestr(f"gzip/{name}.gz", gzip.compress(turned, compresslevel=1))
    fetched = []
    monkeypatch.setenv("MFDL_DATA", str(tmp_path / "none"))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: tmp_path / "cache")
    monkeypatch.setattr("pooch.retrieve", lambda url, **_: fetched.append(url) or str(archive))
    again = load_data("emnist")
    assert np.array_equal(again.X[:500], found.X[:500]) and np.array_equal(again.y, found.y) and len(fetched) == 2
    load_data("emnist")
    assert len(fetched) == 2
    every = np.concatenate([found.y, found.y_test])
    assert np.bincount(every)[:10].tolist() == [5778, 6330, 5869, 5969, 5619, 5190, 5705, 6139, 5633, 5686]  # as published


def test_an_emnist_archive_that_is_damaged_is_refused(tmp_path, monkeypatch):
    archive = tmp_path / "gzip.zip"
    with zipfile.ZipFile(archive, "w") as whole: whole.writestr("gzip/emnist-byclass-test-images-idx3-ubyte.gz", b"no gzip")
    monkeypatch.setenv("MFDL_DATA", str(tmp_path / "none"))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: tmp_path / "cache")
    monkeypatch.setattr("pooch.retrieve", lambda url, **_: str(archive))
    with pytest.raises(ValueError, match="gzip.zip.*not a complete gzip file"): load_data("emnist")
    assert not archive.exists()


def test_femnist_from_parquet(tmp_path, monkeypatch):
    rng, rows = np.random.default_rng(0), []
    for k in range(200):
        image = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (28, 28), dtype=np.uint8)).save(image, "png")
        rows.append({"image": {"bytes": image.getvalue(), "path": None}, "writer_id": f"f{k % 7:04d}", "hsf_id": 0, "character": k % 62})
    pd.DataFrame(rows).to_parquet(tmp_path / "train-0.parquet")
    found = load_data("femnist", tmp_path)
    assert found.X.shape[1:] == (1, 28, 28) and len(found.X) + len(found.X_test) == 200 and len(np.unique(found.groups)) == 7 and found.classes == 62 and found.X.max() <= 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="flwrlabs/femnist"): load_data("femnist", tmp_path / "empty")


def test_labels_as_objects_stay_classes_and_missing_ones_are_refused():
    X, y = np.zeros((40, 2)), np.arange(40) % 2
    named, plain = (as_dataset((X, labels)) for labels in (y.astype(object), y))
    assert named.classes == plain.classes == 2 and named.y.dtype == plain.y.dtype and (named.y == plain.y).all()
    for deal in (lambda: dirichlet([0, 1, np.nan, 1], 2, 1.0), lambda: by_group([0, 0, np.nan, 1], 2, 1)):
        with pytest.raises(ValueError, match="has NaN"): deal()


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), st.sampled_from(["round robin", "dirichlet", "group"]), st.integers(0, 1000))
def test_records_take_part_exactly_as_the_participation_says(n, b, epochs, how, seed):
    rng = np.random.default_rng(seed)
    labels, groups = rng.integers(0, 3, 60), rng.permutation(np.repeat(np.arange(12), 5))
    holdings = {"round robin": lambda: round_robin(60, n, seed), "dirichlet": lambda: dirichlet(labels, n, 0.5, seed), "group": lambda: by_group(groups, n, 2, seed)}[how]()
    if any(len(held) == 0 for held in holdings):
        with pytest.raises(ValueError, match="holds no record"): cut(holdings, b)
        return
    batches = cut(holdings, b)
    scheme = batches.participation(epochs)
    held = np.concatenate(holdings)
    assert len(np.unique(held)) == len(held) and set(batches.index[batches.index >= 0]) == set(held)
    sizes = (batches.index >= 0).sum(axis=2)
    assert (sizes.max(axis=1) - sizes.min(axis=1) <= 1).all() and batches.size == sizes.max()
    patterns = set(scheme.patterns())
    for u, own in enumerate(holdings):
        for record in own[:5]: assert tuple(t for t in range(scheme.T) if record in batches.at(t)[u]) in patterns


@pytest.mark.parametrize("index, message", [
    (np.zeros((2, 2), dtype=int), "expected integers"), (np.array([[[0.0]]]), "expected integers"),
    (np.array([[[0, 0]]]), "more than one place"), (np.array([[[-2, 0]]]), "not a record"), (np.array([[[-1]], [[0]]]), "node 0 holds no record"),
])
def test_bad_batches(index, message):
    with pytest.raises(ValueError, match=message): Batches(index)
