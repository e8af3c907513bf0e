"""Data in the forms in which people hold them: the same records as plain arrays, whatever a loader does with them, and refusals of what would be other records."""
import sys

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, IterableDataset, RandomSampler, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler
from torch.utils.data import Dataset as MapStyle

from mfdl import Participation, row_sensitivity, train
from mfdl.learning.methods.data_sets import as_dataset, is_divided

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(40, 3)), RNG.integers(3, size=40)
HELD, FEW = (TensorDataset(torch.tensor(X[part]), torch.tensor(Y[part])) for part in (slice(None), slice(9)))


class Pairs(MapStyle):
    """A data set that makes its records when it is asked, and counts how often."""
    def __init__(self, X, y): self.X, self.y, self.asked = X, y, []
    def __len__(self): return len(self.y)
    def __getitem__(self, i):
        self.asked.append(i)
        return self.X[i], self.y[i]


class Dataset:
    """What is used of a data set of Hugging Face."""
    def __init__(self, **columns): self.columns = columns
    @property
    def column_names(self): return [*self.columns]
    def __len__(self): return len(next(iter(self.columns.values())))
    def __getitem__(self, i): return {name: values[i] for name, values in self.columns.items()}


class DatasetDict(dict):
    """Its parts by name."""


class Stream(IterableDataset):
    def __iter__(self): return iter([(1.0, 0)])


Dataset.__module__, DatasetDict.__module__ = "datasets.arrow_dataset", "datasets.dataset_dict"


def equal(one, other):
    for name in ("X", "y", "X_test", "y_test"):
        found, expected = getattr(one, name), getattr(other, name)
        assert found.dtype == expected.dtype and np.array_equal(found, expected), name


KINDS = ("tensors", "pairs", "list", "floats")


@given(shuffle=st.booleans(), batch_size=st.one_of(st.none(), st.integers(1, 50)), drop=st.booleans(), kind=st.sampled_from(KINDS), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_a_loader_is_its_records(shuffle, batch_size, drop, kind, seed):
    """Whatever its order, its batches and its kind of records; alone, a fifth is put aside as of arrays."""
    targets = Y if kind != "floats" else Y + 0.25
    held = {"tensors": HELD, "pairs": Pairs(X, Y), "list": [*zip(torch.tensor(X), Y.tolist(), strict=True)], "floats": Pairs(X.tolist(), targets.tolist())}[kind]
    torch.manual_seed(seed)
    loader = DataLoader(held, batch_size=batch_size, shuffle=shuffle, drop_last=drop and batch_size is not None)
    equal(as_dataset(loader), as_dataset((X, targets)))
    equal(as_dataset((loader, DataLoader(Subset(loader.dataset, range(7))))), as_dataset((X, targets, X[:7], targets[:7])))


def test_training_on_a_loader_is_training_on_its_arrays():
    plan = {"graph": "ring:n=4", "epsilon": 8.0, "participation": Participation.cyclic(2, 2), "secret": 3, "progress": False}
    models = [train(lambda: torch.nn.Linear(3, 3), data, **plan).simulation.theta for data in (
        (X, Y, X[:9], Y[:9]), (DataLoader(HELD, 7, shuffle=True), FEW), DatasetDict(train=Dataset(x=X, label=Y), test=Dataset(x=X[:9], label=Y[:9])),
        (pd.DataFrame(X, index=range(7, 47)), pd.Series(Y), X[:9], Y[:9]))]
    for found in models[1:]: assert torch.equal(found, models[0])


@given(st.lists(st.integers(-40, 39), min_size=2, max_size=40, unique_by=lambda i: i % 40), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_subset_has_its_records(indices, nested):
    whole = as_dataset((HELD, FEW))
    for base in (HELD, Pairs(X, Y)):
        part = Subset(Subset(base, range(39, -1, -1)), [39 - i % 40 for i in indices]) if nested else Subset(base, indices)
        found = as_dataset((part, FEW))
        assert np.array_equal(found.X, whole.X[indices]) and np.array_equal(found.y, whole.y[indices])


def test_records_are_asked_for_once_and_in_order():
    held = Pairs(X, Y)
    as_dataset(DataLoader(held, batch_size=4, shuffle=True))
    assert held.asked == [*range(40)]
    images = Pairs(RNG.integers(255, size=(6, 1, 4, 4), dtype=np.uint8), [True, False] * 3)
    found = as_dataset((images, images))
    assert found.X.shape == (6, 1, 4, 4) and found.X.dtype == np.float32 and found.y.tolist() == [1, 0] * 3


def test_columns_with_names():
    plain = as_dataset((X, Y))
    named = {"label": Y, "a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}
    for held in (Dataset(x=X, label=Y), Dataset(target=Y.tolist(), x=X.tolist()), Dataset(first=X, second=Y), Dataset(**named), DatasetDict(train=Dataset(**named)),
                 DataLoader(Dataset(x=X, labels=Y), shuffle=True), Dataset(**{name: torch.tensor(values) for name, values in named.items()})): equal(as_dataset(held), plain)
    parts = DatasetDict(train=Dataset(x=X, y=Y), test=Dataset(x=X[:5], y=Y[:5]), validation=None)
    equal(as_dataset(parts), as_dataset((X, Y, X[:5], Y[:5])))


def test_one_data_set_alone_is_not_divided():
    alone = (HELD, DataLoader(HELD), Dataset(x=X, y=Y), DatasetDict(train=Dataset(x=X, y=Y)), (X, Y), [X, Y])
    assert not any(map(is_divided, alone))
    assert all(map(is_divided, ("digits", as_dataset(HELD), (HELD, FEW), [DataLoader(HELD), FEW], (X, Y, X, Y), DatasetDict(train=HELD, test=FEW))))
    for data in alone:
        with pytest.raises(ValueError, match="holdings: a fifth of data without a test part"):
            train(lambda: torch.nn.Linear(3, 3), data, "ring:n=4", 8.0, holdings=[[0], [1], [2], [3]], participation=Participation.cyclic(1, 1), progress=False)
    done = train(lambda: torch.nn.Linear(3, 3), (HELD, FEW), "ring:n=4", 8.0, holdings=[[0], [1], [2], [39]], participation=Participation.cyclic(1, 1), progress=False)
    assert done.simulation.batches.index.max() == 39


@given(st.permutations(range(6)), st.sampled_from(["same", "counted", "others", "moved"]))
@settings(max_examples=60, deadline=None)
def test_tables_are_read_by_position(order, kind):
    """With any index; where it names the same records in another order, neither is taken silently."""
    names = [f"r{i}" for i in order]
    table = pd.DataFrame(X[:6], columns=list("abc"), index=names)
    index = {"same": names, "counted": range(6), "others": [f"s{i}" for i in order], "moved": names[1:] + names[:1]}[kind]
    labels = pd.Series(Y[:6], index=index)
    if kind == "moved":
        with pytest.raises(ValueError, match=r"^y has its records in another order than X"): as_dataset((table, labels))
        labels = labels.loc[table.index]
    equal(as_dataset((table, labels)), as_dataset((X[:6], labels.to_numpy())))
    equal(as_dataset((table, labels, table, labels)), as_dataset((X[:6], labels.to_numpy()) * 2))


def test_a_table_whose_rows_were_shuffled_is_told_from_one_that_was_filtered():
    table = pd.DataFrame(X)
    filtered = table[table[0] > 0]
    equal(as_dataset((filtered, pd.Series(Y[:len(filtered)]))), as_dataset((filtered.to_numpy(), Y[:len(filtered)])))
    with pytest.raises(ValueError, match="another order"): as_dataset((table.sample(frac=1, random_state=1), pd.Series(Y)))
    with pytest.raises(ValueError, match="y_test has its records in another order than X_test"): as_dataset((table, pd.Series(Y), table[::-1], pd.Series(Y)))
    with pytest.raises(ValueError, match="another order"): as_dataset((table.set_axis(range(1, 41)), pd.Series(Y, index=range(2, 42))))
    mixed = pd.DataFrame({"n": pd.array([1, 2, 3], dtype="Int64"), "f": [0.5, 1.5, 2.5], "b": [True, False, True], "o": np.array([1, 2.5, 3], dtype=object)})
    assert as_dataset((mixed, [0, 1, 0], mixed, [0, 1, 0])).X.tolist() == [[1, 0.5, 1, 1], [2, 1.5, 0, 2.5], [3, 2.5, 1, 3]]
    twice = pd.DataFrame(X[:3], index=["a", "a", "b"])
    equal(as_dataset((twice, pd.Series(Y[:3], index=["a", "a", "c"]))), as_dataset((X[:3], Y[:3])))


TABLE = pd.DataFrame({"age": [1, 2], "name": ["Ada", "Bob"], "when": pd.to_datetime(["2026-01-01", "2026-01-02"]), "none": pd.array([1, None], dtype="Int64")})


class Unsized(MapStyle):
    def __getitem__(self, i): return X[i], Y[i]


@pytest.mark.parametrize("data, said", [
    *[(DataLoader(HELD, sampler=sampler), f"data: the {type(sampler).__name__} of this DataLoader may leave records out or repeat them") for sampler in (
        SubsetRandomSampler(range(9)), WeightedRandomSampler(torch.ones(40), 40), RandomSampler(HELD, replacement=True), RandomSampler(HELD, num_samples=80), range(40))],
    (DataLoader(HELD, batch_sampler=BatchSampler(SubsetRandomSampler(range(9)), 3, False)), "the SubsetRandomSampler of this DataLoader"),
    (DataLoader(HELD, batch_sampler=[[0, 1], [1, 2]]), "the list of this DataLoader"),
    (DataLoader(HELD, collate_fn=list), "the collate_fn of this DataLoader changes records"),
    (Stream(), "is a stream of records"), (DataLoader(Stream()), "is a stream of records"), (Unsized(), "without a length"),
    (Subset(HELD, [1, 2, -39]), "has a record twice"), (TensorDataset(torch.tensor(X)), "has 1 tensors: expected two"), (Pairs([], []), "has no records"),
    (Pairs([[1.0], [1.0, 2.0]], [0, 1]), r"x and y of record 1 have shapes \(2,\) and \(\)"), (Pairs([1.0, 1.0], [0, [1, 2]]), "record 1 have shapes"),
    (Pairs([1.0, None], [0, 1]), "x of record 1, of type NoneType, is not made of numbers"), (Pairs(["a", "b"], [0, 1]), "x of record 0 is a text"),
    (Pairs([[[1], [1, 2]]], [0]), "x of record 0 is no array"), (DataLoader([(1.0, 0, 0)]), "record 0 is of type tuple: expected a pair"),
    (DataLoader([{"x": 1}]), "record 0 is of type dict: expected a pair"), (Pairs([1.0, 2.0], ["a", "b"]), "y has entries of type str"),
    (ConcatDataset([HELD, Pairs([[1.0]], [0])]), r"x and y of record 40 have shapes \(1,\)"),
    ((HELD, X), "data is a pair of TensorDataset and ndarray: expected two data sets"), ((HELD, FEW, HELD), "data is of type tuple"),
    (DatasetDict(validation=HELD), r"data has the parts \['validation'\]"), (DatasetDict(), "data has the parts"),
    (Dataset(x=X, y=Y, label=Y), "expected one target among them"), (Dataset(a=Y, b=Y, c=Y), "expected one target among them"), (Dataset(label=Y), "expected one target"),
    (Dataset(name=["a"], age=[1], label=[0]), r"the columns \['name'\] are not numbers"), (Dataset(x=X, age=Y, label=Y), r"the columns \['x'\] are not numbers"),
    (Dataset(x=[1.0, 2.0], label=["a", "b"]), "y has entries of type str"),
    ((TABLE, [0, 1]), r"X: the columns \['name', 'when'\] are not numbers"), ((TABLE[["age"]], [0, 1], TABLE, [0, 1]), r"X_test: the columns \['name', 'when'\]"),
])
def test_what_would_be_other_records_is_refused(data, said):
    with pytest.raises(ValueError, match=said) as caught: as_dataset(data)
    assert "\n" not in str(caught.value)


def test_neither_package_is_loaded_for_arrays(monkeypatch):
    """What is not loaded can hold nothing that is given."""
    for name in ("torch.utils.data", "pandas", "datasets"): monkeypatch.delitem(sys.modules, name, raising=False)
    assert len(as_dataset((X, Y, X, Y)).y) == 40 and not {"torch.utils.data", "datasets"} & {*sys.modules}


@pytest.mark.parametrize("noise", ["mafalda", "independent"])
def test_to_replace_a_record_takes_twice_the_noise_of_leaving_it_out(noise):
    """And small batches are divided by the size of the largest one: as `help(train)` says."""
    scales = {}
    for adjacency in ("replace-one", "zero-out"):
        done = train(lambda: torch.nn.Linear(3, 3), (HELD, FEW), "ring:n=4", 8.0, noise=noise, adjacency=adjacency, participation=Participation.cyclic(1, 1), progress=False,
                     holdings=[[0, 1, 2, 3], [4], [5], [6]])
        scales[adjacency] = done.simulation.runs[0].scale
        assert done.simulation.batches.size == 4
    assert np.isclose(scales["replace-one"], 2 * scales["zero-out"])
    assert row_sensitivity(1.0, 4, "replace-one") == 2 * row_sensitivity(1.0, 4, "zero-out") == 0.5


SITES = nx.path_graph(["Kiel", "Aachen", "Mainz"])


def of_sites():
    rng = np.random.default_rng(0)
    return {site: (rng.normal(size=(k, 4)), rng.integers(0, 3, size=k)) for site, k in (("Aachen", 30), ("Mainz", 12), ("Kiel", 20))}


def test_data_and_holdings_by_the_names_of_sites():
    """In whatever order they are given, a site trains on its own records, and the model of a site is found under its name."""
    held, test = of_sites(), of_sites()["Mainz"]
    X, y = (np.concatenate([held[site][k] for site in SITES]) for k in (0, 1))
    mine = {"Mainz": np.arange(50, 62), "Kiel": np.arange(20), "Aachen": np.arange(20, 50)}
    how = {"model": lambda: torch.nn.Linear(4, 3), "graph": SITES, "epsilon": 8.0, "participation": Participation.cyclic(2, 3), "secret": 5, "progress": False}
    by_site, by_number = train(data=(held, test), **how), train(data=(X, y, *test), holdings=mine, **how)
    batches = by_site.simulation.learner.batches
    for u, site in enumerate(SITES):
        index = batches.index[u][batches.index[u] >= 0]
        np.testing.assert_allclose(X[np.sort(index)], held[site][0])
        assert (by_site.predict(X, node=site) == by_number.predict(X, node=site)).all()
    persons = {site: np.arange(len(held[site][1])) // 2 + 100 * k for k, site in enumerate(held)}
    by_person = train(data=(held, test), person=persons, **how).simulation.learner.members
    assert by_person.shape == (10 + 15 + 6, 2) and (by_person[0] == [0, 1]).all()
    for data, more, said in (
            (held, {}, r"expected \(\{node"), ({"Kiel": held["Kiel"]}, {}, r"expected \(\{node"), (({**held, "Ulm": held["Kiel"]}, test), {}, "'Ulm' is not a node"),
            (({"Kiel": held["Kiel"]}, test), {}, "nothing for 'Aachen'"), ((held, test), {"holdings": mine}, "expected no holdings"),
            (({**held, "Kiel": (X[:, :3], y)}, test), {}, "of the same shape"), ((X, y, *test), {"holdings": [[0], [1]]}, "of 2 nodes; expected 3"),
            ((X, y[:, None], *test), {}, "expected a class for each record"), ((X, y + 1, test[0], test[1] + 1), {}, "least label is 1"),
            ((X, y, test[0][:, :2], test[1]), {}, "X_test has records of shape")):
        with pytest.raises(ValueError, match=said): train(data=data, **how | more)
