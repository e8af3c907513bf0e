"""An account in exact fractions, straight from the definitions: slow, and without a line of the package's accounts."""
from fractions import Fraction

import numpy as np
from flint import fmpq, fmpq_mat


def rational(x):
    numerator, denominator = Fraction(float(x)).as_integer_ratio()
    return fmpq(numerator, denominator)


def matrix(rows, columns): return fmpq_mat(len(rows), columns, [x for row in rows for x in row])


def noise_of(row, known, drawn, before, width):
    """A combination of the variables drawn last, without those that are known."""
    noise = [fmpq(0)] * width
    for j, weight in enumerate(row):
        at = drawn - len(row) + j
        if weight and not known[at]: noise[before + at] += rational(weight)
    return noise


def plus(one, other, weight=1): return [a + weight * b for a, b in zip(one, other, strict=True)]


def exchanged(one, models, seen_by, drawn, known, before, rate):
    """Messages of one exchange that the attackers see, and models after it; every message may have noise of its own."""
    W, n, width = one.W if isinstance(one.W, np.ndarray) else one.W.toarray(), len(models), len(models[0])
    share = None if one.share is None else one.share.toarray()
    def sent(v, u): return models[u] if share is None else plus(models[u], noise_of(share[v * n + u], known, drawn, before, width), rate)
    heard = [(v, u) for u in range(n) for v in range(n) if u != v and W[v, u] and (seen_by is None or v in seen_by)]
    if share is None: heard = list({u: (v, u) for v, u in heard}.values())
    after = []
    for v in range(n):
        model = [fmpq(0)] * width
        for u in range(n):
            if W[v, u]: model = plus(model, sent(v, u), rational(W[v, u]))
        after.append(model)
    return [sent(v, u) for v, u in heard], after


def view(run, nodes, hears_all=False, schedule=None):
    """Rows of what the attackers (indices; none: an eavesdropper) see: coefficients of hidden gradients, then of unknown noise."""
    rates, keeps = (np.ones(run.T), np.ones(run.T)) if schedule is None else (schedule.rates(run.T), schedule.kept(run.T))
    momentum, nesterov = (0, False) if schedule is None else (rational(schedule.momentum), schedule.nesterov)
    n, zero = run.n, fmpq(0)
    known = np.asarray(run.variables.holders[:, nodes].sum(axis=1)).ravel() > 0 if nodes else np.zeros(len(run.variables.holder_set), dtype=bool)
    width = n * run.T + len(known)
    models, velocity, added, seen = [[zero] * width for _ in range(n)], [[zero] * width for _ in range(n)], [], []
    for t, step in enumerate(run.steps):
        mix, back, drawn = step.noise.mix.toarray(), step.noise.back.toarray(), run.drawn[t + 1]
        for u in range(n):
            noise = noise_of(mix[u], known, drawn, n * run.T, width)
            start = n * (t + 1) - back.shape[1]
            for j, weight in enumerate(back[u][:start * -1 + n * t + u]):
                if weight: noise = [a - rational(weight) * b for a, b in zip(noise, added[start + j], strict=True)]
            own = rational(back[u][n * t + u - start])
            added.append([a / own for a in noise])
        rate, keep = rational(rates[t]), rational(keeps[t])
        basis = np.eye(n) if step.noise.basis is None else step.noise.basis
        for u in range(n):
            entering = [zero] * width
            for v in np.flatnonzero(basis[u]): entering = plus(entering, added[n * t + v], rational(basis[u, v]))
            if step.trains[u] and u not in nodes: entering[n * t + u] += 1
            velocity[u] = plus(entering, velocity[u], momentum)
            update = plus(entering, velocity[u], momentum) if nesterov else velocity[u]
            models[u] = [keep * a + rate * b for a, b in zip(models[u], update, strict=True)]
        for one in step.rounds:
            messages, models = exchanged(one, models, None if hears_all or not nodes else nodes, drawn, known, n * run.T, rate)
            seen += messages
    return seen, width


def information(run, nodes, hears_all=False, schedule=None):
    """(leaks, P): bool (T, n), and float (n, T, T) for gradients that do not leak."""
    seen, width = view(run, nodes, hears_all, schedule)
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
