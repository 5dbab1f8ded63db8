"""Run one rival on a split in plain arrays: python rivals_run.py NAME SPLIT.npz RESULT.npz RANK THREADS.

Runs in the rivals' environment, without dsgmcmc. Writes the curve of (seconds, RMSE of the mean prediction), the test
predictions and, where the tool has them, their standard deviations.
"""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np
from scipy import sparse

BURN_IN, DRAWS = 20, 80


def load(path):
    """The split: shape, mean, and (users, items, values) of both parts."""
    with np.load(path) as arrays:
        parts = [[arrays[f"{part}_{name}"] for name in ("users", "items", "values")] for part in ("train", "test")]
        return tuple(int(n) for n in arrays["shape"]), float(arrays["mean"]), *parts


def load_features(path):
    """Features of both sides, (n, F) sparse."""
    with np.load(path) as arrays:
        return [
            sparse.csr_matrix(
                tuple(arrays[f"{side}_{name}"] for name in ("values", "indices", "indptr")),
                shape=(n, int(arrays[f"{side}_features"])),
            )
            for side, n in zip(("users", "items"), arrays["shape"], strict=True)
        ]


def smurff(shape, mean, train, test, rank, threads, features=()):
    """SMURFF's BPMF, with features Macau, and its adaptive noise, the better of its noise models; centred ratings."""
    import smurff as package

    matrices = [sparse.coo_matrix((v.astype(float) - mean, (r, c)), shape=shape).tocsc() for r, c, v in (train, test)]
    session = package.TrainSession(
        priors=["macau", "macau"] if features else ["normal", "normal"],
        num_latent=rank,
        num_threads=threads,
        burnin=BURN_IN,
        nsamples=DRAWS,
        seed=1,
        verbose=0,
    )
    session.addTrainAndTest(*matrices, package.AdaptiveNoise(1.0, 10.0))
    for mode, side in enumerate(features):
        session.addSideInfo(mode, side.tocsr().astype(float), package.SampledNoise(1.0), direct=True)
    curve = []
    begin = perf_counter()
    session.init()
    while session.step():
        curve.append((perf_counter() - begin, session.getStatus().rmse_avg))
    predicted = {tuple(p.coords): p.pred_avg for p in session.getTestPredictions()}
    pairs = np.array([predicted[pair] for pair in zip(test[0].tolist(), test[1].tolist(), strict=True)])
    return {"curve": curve[BURN_IN:], "mean": pairs + mean}


def myfm(shape, mean, train, test, rank, threads, features=(), implicit=False):
    """MyFM's Gibbs sampler for factorisation machines on the two one-hot encodings; one core.

    Features of both sides, and with `implicit` the partners of each user and item, are blocks of relations.
    """
    from myfm import MyFMGibbsRegressor, RelationBlock

    rated = sparse.csr_matrix((np.ones(len(train[0])), (train[0], train[1])), shape=shape)
    sides = []
    for own, side in zip((rated, rated.T.tocsr()), features, strict=False):
        share = sparse.diags(1 / np.sqrt(np.maximum(own.getnnz(axis=1), 1))) @ own
        sides.append([sparse.identity(own.shape[0]), side, *([share] if implicit else [])])
    blocks = [sparse.hstack(parts).tocsr() for parts in sides]

    def encode(r, c, _):
        if features:
            relations = [RelationBlock(index.tolist(), block) for index, block in zip((r, c), blocks, strict=True)]
            return sparse.csr_matrix((len(r), 0)), relations
        both = np.stack([r, c + shape[0]], axis=1).ravel()
        ends = np.arange(0, len(both) + 1, 2)
        return sparse.csr_matrix((np.ones(len(both)), both, ends), shape=(len(r), sum(shape))), []

    inputs, targets = encode(*test), test[2]
    curve, total, begin = [], np.zeros(len(targets)), perf_counter()

    def watch(step, fm, hyper, history):
        if step >= BURN_IN:
            total[:] += fm.predict_score(*inputs)
            curve.append((perf_counter() - begin, np.sqrt(np.mean((total / (step - BURN_IN + 1) - targets) ** 2))))
        return False, None

    model, (x, relations) = MyFMGibbsRegressor(rank=rank, random_seed=1), encode(*train)
    groups = [part.shape[1] for parts in sides for part in parts] or list(shape)
    lengths = {"n_iter": BURN_IN + DRAWS, "n_kept_samples": 1}
    model.fit(x, train[2], relations, group_shapes=groups, callback=watch, **lengths)
    return {"curve": curve, "mean": total / DRAWS}


def libmf(shape, mean, train, test, rank, threads):
    """LIBMF, a point estimate by SGD; one run for every length, the best of them counts."""
    from libmf.mf import MF

    data = np.stack([*train[:2], train[2]], axis=1).astype(np.float32)
    curve, predictions = [], []
    for epochs in (5, 10, 15, 20, 30, 40):
        model = MF(k=rank, nr_threads=threads, nr_iters=epochs, quiet=True, lambda_p2=0.05, lambda_q2=0.05)
        begin = perf_counter()
        model.fit(data)
        seconds = perf_counter() - begin
        # its own predict() pairs rows and columns wrongly (libmf 0.9.2), so the factors are multiplied here
        prediction = np.sum(model.p_factors()[test[0]] * model.q_factors()[test[1]], axis=1)
        prediction = np.where(np.isnan(prediction), mean, prediction)
        rmse = np.sqrt(np.mean((prediction - test[2]) ** 2))
        curve.append((seconds, rmse))
        predictions.append(prediction)
    return {"curve": curve, "mean": predictions[np.argmin(curve, axis=0)[1]]}


if __name__ == "__main__":
    name, split, result, rank, threads = sys.argv[1:]
    run = {
        "smurff": smurff,
        "myfm": myfm,
        "libmf": libmf,
        "smurff, features": lambda *given: smurff(*given, load_features(split)),
        "myfm, features": lambda *given: myfm(*given, load_features(split)),
        "myfm, features, implicit": lambda *given: myfm(*given, load_features(split), implicit=True),
    }[name]
    np.savez(result, **run(*load(split), int(rank), int(threads)))
