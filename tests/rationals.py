"""An account in exact fractions, straight from the definitions: slow, and without a line of the package's accounts."""
from fractions import Fraction

import numpy as np
from flint import fmpq, fmpq_mat


def rational(x):
    numerator, denominator = Fraction(float(x)).as_integer_ratio()
    return fmpq(numerator, denominator)


def matrix(rows, columns): return fmpq_mat(len(rows), columns, [x for row in rows for x in row])


def view(run, nodes, hears_all=False):
    """Rows of what the attackers (indices; none: an eavesdropper) see: coefficients of hidden gradients, then of unknown noise."""
    n, zero = run.n, fmpq(0)
    known = run.variables.holder_sets[:, nodes].any(axis=1)[run.variables.holder_set] if nodes else np.zeros(len(run.variables.holder_set), dtype=bool)
    width = n * run.T + len(known)
    models, added, seen = [[zero] * width for _ in range(n)], [], []
    for t, step in enumerate(run.steps):
        mix, back, drawn = step.noise.mix.toarray(), step.noise.back.toarray(), run.drawn[t + 1]
        for u in range(n):
            noise = [zero] * width
            for j, weight in enumerate(mix[u]):
                at = drawn - mix.shape[1] + j
                if weight and not known[at]: noise[n * run.T + at] += rational(weight)
            start = n * (t + 1) - back.shape[1]
            for j, weight in enumerate(back[u][:start * -1 + n * t + u]):
                if weight: noise = [a - rational(weight) * b for a, b in zip(noise, added[start + j], strict=True)]
            own = rational(back[u][n * t + u - start])
            added.append([a / own for a in noise])
        for u in range(n):
            models[u] = [a + b for a, b in zip(models[u], added[n * t + u], strict=True)]
            if step.trains[u] and u not in nodes: models[u][n * t + u] += 1
        for one in step.rounds:
            heard = hears_all or not nodes
            seen += [models[u] for u in range(n) if (np.delete(one.W[:, u], u).any() if heard else any(one.W[v, u] and v != u for v in nodes))]
            weights = [[rational(w) for w in row] for row in one.W]
            models = [[sum((w * m[i] for w, m in zip(row, models, strict=True) if w != 0), zero) for i in range(width)] for row in weights]
    return seen, width


def information(run, nodes, hears_all=False):
    """(leaks, P): bool (T, n), and float (n, T, T) for gradients that do not leak."""
    seen, width = view(run, nodes, hears_all)
    n, T = run.n, run.T
    gradients = n * T
    leaks, P = np.zeros((T, n), dtype=bool), np.zeros((n, T, T))
    if not seen: return leaks, P
    swapped = matrix([row[gradients:] + row[:gradients] for row in seen], width)
    echelon, total = swapped.rref()
    table, q = echelon.table(), width - gradients
    first = [next((j for j, x in enumerate(row) if x != 0), width) for row in table]
    rank = sum(j < q for j in first)
    visible = np.array([any(table[i][q + j] != 0 for i in range(rank, total)) for j in range(gradients)], dtype=bool)
    leaks[:] = visible.reshape(T, n)
    if not rank: return leaks, P
    noise = matrix([row[gradients:] for row in seen], q)
    columns = noise.transpose().rref()[0].table()
    rows = [next(j for j, x in enumerate(row) if x != 0) for row in columns[:rank]]
    B = matrix([seen[i][gradients:] for i in rows], q)
    covariance = B * B.transpose()
    for u in range(n):
        steps = np.flatnonzero(~leaks[:, u])
        if not len(steps): continue
        A = matrix([[seen[i][n * t + u] for t in steps] for i in rows], len(steps))
        its = (A.transpose() * covariance.solve(A)).table()
        P[u][np.ix_(steps, steps)] = [[float(x.p) / float(x.q) if max(abs(int(x.p)), int(x.q)) < 10**300 else float(Fraction(int(x.p), int(x.q))) for x in row] for row in its]
    return leaks, P
