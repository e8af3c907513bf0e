"""Squared error of noise with a few buffers, against peers that remember as many vectors."""
import time

import matplotlib.pyplot as plt
import numpy as np
from harness import ONE_THREAD, main, peak_memory
from scipy.linalg import solve_triangular, toeplitz
from scipy.signal import fftconvolve, lfilter

from mfdl.accounting.sensitivity import worst_sensitivity
from mfdl.base.figures import PALETTE, STYLE
from mfdl.noise.methods.buffered import best_buffers
from mfdl.noise.methods.low_memory import banded_inverse
from mfdl.noise.methods.objectives import Objective
from mfdl.protocol.participation import Participation

MOMENTUM = {"prefix": 0.0, "momentum": 0.9}
OURS = "mfdl, buffers"
COLORS = {
    "mfdl, variables": PALETTE["ours"], "opake, BLT": PALETTE["squared"],
    "jax-privacy, BLT": PALETTE["ldp"], "jax-privacy, banded": PALETTE["as_plotted"],
}
ONE_NODE = np.ones((1, 1))
DENSE = 2048  # steps up to which matrices are written out


def workload(name, T):
    "Its coefficients: those of sums of steps of training, with momentum or without."
    beta = MOMENTUM[name]
    return np.cumsum(beta ** np.arange(T)) if beta else np.ones(T)


def inverse_series(c):
    "Coefficients of 1 / c, twice as many at a time."
    q = np.array([1 / c[0]])
    while len(q) < len(c):
        size = min(2 * len(q), len(c))
        product = fftconvolve(q, c[:size])[:size]
        q = np.append(q, np.zeros(size - len(q)))
        q = 2 * q - fftconvolve(q, product)[:size]
    return q


def dense_error(C, name, k, b):
    "From matrices, and the exact sensitivity of every pattern."
    T = k * b
    A = np.tril(toeplitz(workload(name, T)))
    noise = solve_triangular(C.T, A.T, lower=False)  # (A C^-1)^T
    return (noise**2).sum() * worst_sensitivity(C.T @ C, Participation.cyclic(k, b)) ** 2


def series_error(c, sizes, name, k, b):
    "The same of a C that has coefficients c in its columns, which fall, and sizes that rise."
    y = lfilter([1.0], [1.0, -1.0], lfilter([1.0], [1.0, -MOMENTUM[name]], inverse_series(c)))
    falling = np.maximum.accumulate(np.abs(c)[::-1])[::-1]  # no less than c, if one should rise
    change = np.cumsum(falling.reshape(k, b), axis=0).ravel()
    return sizes**2 @ np.cumsum(y**2)[::-1] * ((change / sizes) ** 2).sum()


def by_buffers(name, k, b, vectors):
    objective = Objective(momentum=MOMENTUM[name])
    found = best_buffers(ONE_NODE, Participation.cyclic(k, b), vectors, objective)
    return found.coefficients, found.sizes


def by_variables(name, k, b, vectors):
    A = np.tril(toeplitz(workload(name, k * b)))
    N = banded_inverse(A.T @ A, Participation.cyclic(k, b), vectors + 1)
    return solve_triangular(N, np.eye(k * b), lower=True), None


def by_opake(name, k, b, vectors):
    import torch
    from opake.api.dpftrl.noise import _blt_math
    torch.set_num_threads(1)
    found = _blt_math.optimize(
        n=k * b, min_sep=b, max_participations=k, error="mean", max_buffers=vectors,
        workload_coef=torch.tensor(workload(name, k * b)))
    return _blt_math.toeplitz_coefs(found, k * b).numpy(), None


def by_jax(name, k, b, vectors):
    import jax
    jax.config.update("jax_enable_x64", True)
    from jax_privacy.matrix_factorization import buffered_toeplitz
    found = buffered_toeplitz.optimize(
        n=k * b, min_sep=b, max_participations=k, error="mean", max_buffers=vectors)
    return np.asarray(found.toeplitz_coefs(k * b)), None


def by_jax_bands(name, k, b, vectors):
    import jax
    jax.config.update("jax_enable_x64", True)
    from jax_privacy.matrix_factorization import toeplitz as banded
    c = np.zeros(k * b)
    c[:vectors + 1] = banded.optimize_banded_toeplitz(k * b, vectors + 1)
    return c, None


WAYS = {
    OURS: by_buffers, "mfdl, variables": by_variables, "opake, BLT": by_opake,
    "jax-privacy, BLT": by_jax, "jax-privacy, banded": by_jax_bands,
}


def measure(who, name, k, b, vectors):
    "Small runs first, so that imports are not counted; what a call compiles is."
    WAYS[who](name, 2, 3, 1)
    before, start = peak_memory(), time.process_time()
    made, sizes = WAYS[who](name, k, b, vectors)
    cpu, memory = time.process_time() - start, peak_memory() - before
    T = k * b
    sizes = np.ones(T) if sizes is None else sizes
    if T > DENSE:
        error = series_error(made, sizes, name, k, b)
    else:
        C = made if made.ndim == 2 else np.tril(toeplitz(made)) / sizes[:, None]
        error = dense_error(C, name, k, b)
    return {"T": T, "error": error, "cpu": cpu, "GB": memory}


def cases(quick):  # who, workload, k, b, vectors
    sizes = [(3, 4)] if quick else [(10, 10), (20, 19), (16, 64), (4, 256)]
    ways = list(WAYS)[:2] if quick else list(WAYS)
    for k, b in sizes:
        for name in MOMENTUM:
            for vectors in (1, 4):
                for who in ways:
                    if who.startswith("jax") and name != "prefix": continue
                    yield who, name, k, b, vectors
    if quick: return
    for who in (OURS, "opake, BLT"):
        yield who, "prefix", 10, 10_000, 4


def beside_ours(table):
    "Rows of peers, with the ratios of squared errors and of CPU times."
    case = ["workload", "k", "b", "vectors"]
    ours = table[table.who == OURS].set_index(case)
    rows = table[table.who != OURS].copy()
    mine = ours.loc[list(rows[case].itertuples(index=False, name=None))]
    rows["ratio"] = mine.error.to_numpy() / rows.error.to_numpy()
    rows["times"] = rows.cpu.to_numpy() / mine.cpu.to_numpy()
    return rows


def draw(table):
    rows = beside_ours(table)
    names = [f"{r.workload}, k={r.k}, b={r.b}, {r.vectors} kept" for r in rows.itertuples()]
    places = list(dict.fromkeys(names))[::-1]
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(ncols=2, sharey=True, figsize=(9, 5), layout="constrained")
        for (who, color), marker in zip(COLORS.items(), "osx^", strict=True):
            look = {"marker": marker, "linestyle": "", "color": color, "fillstyle": "none"}
            shown = (rows.who == who).to_numpy()
            where = [places.index(name) for name, one in zip(names, shown, strict=True) if one]
            if not where: continue
            axes[0].plot(rows.ratio[shown], where, label=who, **look)
            axes[1].plot(rows.times[shown], where, **look)
        for ax in axes:
            ax.axvline(1, color="black", lw=0.8)
        axes[0].set_yticks(range(len(places)), places)
        less = rows[~rows.who.str.startswith("mfdl")].ratio < 1
        said = f"Less than peers in {less.sum()} of {len(less)}" if len(less) else "Squared error"
        axes[0].set(xlabel="squared error of buffers / of another", title=said, xlim=(0, None))
        axes[1].set(xlabel="CPU time of another / of buffers", title="Time of the search")
        axes[1].set(xscale="log")
        axes[0].legend(fontsize="small")
    return fig


def report(table):
    yield "All are judged by the same squared error, at exactly the same sensitivity.\n"
    if table.who.str.startswith("jax").any():
        yield "The times of jax-privacy hold what a call compiles.\n"
    for row in beside_ours(table).itertuples():
        yield (f"- {row.workload}, k={row.k}, b={row.b}, {row.vectors} vectors: {row.ratio:.3f} of "
               f"the squared error of {row.who}, found {row.times:.1f} times as fast")


if __name__ == "__main__":
    columns = ("who", "workload", "k", "b", "vectors")
    main(__file__, __doc__, columns, cases, measure, draw, report, ONE_THREAD)
