"""Fit another package to ratings as its user would.

    python tools.py NAME SETTINGS TRAIN.csv TEST.csv OUT.npz BEGAN

Runs in the package's own environment, without dsgmcmc. SETTINGS is JSON, keyword arguments of the
package; {} are its defaults. Files have lines of user, item and rating, counted from 0. BEGAN is
the time at which this program was started, so that seconds contain start-up and reading. OUT.npz
gets what the package has of: `predicted` ratings of the test pairs; the ten best `lists` of items
for every user; the `curve` of seconds and RMSE of the mean over draws; the `draws` of the first
test pairs; the seconds that do not count, of `watching` and of making lists; and the peak of
memory, in KiB.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse

warnings.filterwarnings("ignore")
THREADS = 2
TOP = 10
LIKED = 4.0
FOLLOWED = 256
EASE_ITEMS = 20_000  # of which EASE^R needs some 10 GB


class Watch:
    """Records the RMSE of the mean over draws, and draws of the first test pairs, on the clock
    since BEGAN.
    """

    def __init__(self, ratings, began):
        self.ratings = ratings
        self.began = began
        self.spent = 0.0
        self.total = np.zeros(len(ratings))
        self.curve = []
        self.draws = []

    def __call__(self, predict):
        """Take in one draw of the predicted ratings of all test pairs; its seconds do not count."""
        begin = time.time()
        drawn = predict()
        self.total += drawn
        self.draws.append(drawn[:FOLLOWED])
        error = np.sqrt(np.mean((self.total / len(self.draws) - self.ratings) ** 2))
        self.curve.append((begin - self.began - self.spent, error))
        self.spent += time.time() - begin


def matrix(ratings, shape):
    """Ratings as a sparse matrix of users and items."""
    users, items, values = ratings
    return sparse.csr_matrix((values, (users, items)), shape=shape)


def liked(train):
    """Pairs that are rated 4 or more, with ones."""
    users, items, values = (part[train[2] >= LIKED] for part in train)
    return users, items, np.ones_like(values)


def best(scores_of, train, shape):
    """The first items of every user by their scores, without those that the user has rated: (users,
    TOP).
    """
    rated = matrix((*train[:2], np.ones(len(train[0]))), shape)
    lists = []
    for users in np.array_split(np.arange(shape[0]), max(1, shape[0] // 500)):
        scores = np.array(scores_of(users), float)
        scores[rated[users].nonzero()] = -np.inf
        first = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
        order = np.argsort(-np.take_along_axis(scores, first, axis=1), axis=1)
        lists.append(np.take_along_axis(first, order, axis=1))
    return np.concatenate(lists)


def smurff(train, test, shape, watch, centre=False, adaptive=False, **settings):
    """SMURFF's BPMF; with `centre` ratings less their mean, with `adaptive` its sampled noise."""
    import smurff as package

    mean = train[2].mean() if centre else 0.0
    matrices = [
        sparse.coo_matrix((part[2] - mean, part[:2]), shape=shape).tocsc() for part in (train, test)
    ]
    session = package.TrainSession(
        priors=["normal", "normal"], num_threads=THREADS, seed=1, verbose=0, **settings
    )
    session.addTrainAndTest(*matrices, *([package.AdaptiveNoise(1.0, 10.0)] if adaptive else []))
    session.init()
    while session.step():
        status = session.getStatus()
        if status.phase != "Sample":
            continue
        watch.curve.append((time.time() - watch.began - watch.spent, status.rmse_avg))
        # reading single predictions takes longer than a sweep if there are many
        if len(test[0]) <= FOLLOWED:
            watch.draws.append([pair.pred_1sample for pair in session.getTestPredictions()])
    predicted = {tuple(p.coords): p.pred_avg for p in session.getTestPredictions()}
    pairs = zip(test[0].tolist(), test[1].tolist(), strict=True)
    return {"predicted": mean + np.array([predicted[pair] for pair in pairs])}


def myfm(train, test, shape, watch, rank=10, n_iter=100, burn_in=20):
    """MyFM's Gibbs sampler for factorisation machines, on indicators of users and items; rank has
    no default.
    """
    from myfm import MyFMGibbsRegressor

    def encode(users, items):
        columns = np.stack([users, items + shape[0]], axis=1).ravel()
        ends = np.arange(0, len(columns) + 1, 2)
        return sparse.csr_matrix(
            (np.ones(len(columns)), columns, ends), shape=(len(users), sum(shape))
        )

    inputs = encode(*test[:2])
    model = MyFMGibbsRegressor(rank=rank, random_seed=1)

    def follow(step, machine, *_):
        if step >= burn_in:
            watch(lambda: machine.predict_score(inputs, []))
        return False, None

    lengths = {"n_iter": n_iter, "n_kept_samples": 1}
    model.fit(encode(*train[:2]), train[2], group_shapes=list(shape), callback=follow, **lengths)
    return {"predicted": watch.total / len(watch.draws)}


def libmf(train, test, shape, watch, **settings):
    """LIBMF, a point estimate by SGD."""
    from libmf.mf import MF

    model = MF(nr_threads=THREADS, quiet=True, **settings)
    model.fit(np.stack([*train[:2], train[2]], axis=1).astype(np.float32))
    # its own predict() pairs rows and columns wrongly (libmf 0.9.2), so the factors are multiplied
    # here
    predicted = np.sum(model.p_factors()[test[0]] * model.q_factors()[test[1]], axis=1)
    return {"predicted": np.where(np.isnan(predicted), train[2].mean(), predicted)}


def lenskit(train, test, shape, watch, **settings):
    """LensKit's biased matrix factorisation by ALS."""
    import pandas as pd
    from lenskit.als import BiasedMFScorer
    from lenskit.data import ItemList, from_interactions_df
    from lenskit.training import TrainingOptions

    data = from_interactions_df(
        pd.DataFrame({"user_id": train[0], "item_id": train[1], "rating": train[2]})
    )
    model = BiasedMFScorer(**settings)
    model.train(data, TrainingOptions(rng=0))
    everything = ItemList(item_ids=np.arange(shape[1]))

    def scores(users):
        all_scores = [model(user, everything).scores() for user in users.tolist()]
        return np.nan_to_num(np.array(all_scores), nan=train[2].mean())

    users, place = np.unique(test[0], return_inverse=True)
    return {"predicted": scores(users)[place, test[1]], "scores": scores}


def implicit(train, test, shape, watch, **settings):
    """ALS [Hu 2008] of implicit on the pairs that are rated 4 or more; no predicted ratings."""
    from implicit.cpu.als import AlternatingLeastSquares

    fitted = AlternatingLeastSquares(random_state=0, num_threads=THREADS, **settings)
    fitted.fit(matrix(liked(train), shape), show_progress=False)
    return {"scores": lambda users: fitted.user_factors[users] @ fitted.item_factors.T}


def cornac(train, shape):
    """Ratings as Cornac has them."""
    from cornac.data import Dataset

    names = ({row: row for row in range(n)} for n in shape)
    return Dataset(*shape, *names, train, seed=0)


def cornac_mf(train, test, shape, watch, **settings):
    """Cornac's biased matrix factorisation by SGD."""
    from cornac.models import MF

    model = MF(num_threads=THREADS, seed=0, **settings).fit(cornac(train, shape))
    w = model.u_factors
    h = model.i_factors
    a = model.u_biases
    b = model.i_biases
    predicted = train[2].mean() + a[test[0]] + b[test[1]] + (w[test[0]] * h[test[1]]).sum(axis=1)
    return {"predicted": predicted, "scores": lambda users: b + w[users] @ h.T}


def cornac_ease(train, test, shape, watch, **settings):
    """Cornac's EASE^R [Steck 2019] on the pairs that are rated 4 or more; no predicted ratings."""
    from cornac.models import EASE

    if shape[1] > EASE_ITEMS:
        raise MemoryError(
            f"its matrices of {shape[1]:,} by {shape[1]:,} items do not fit in the memory"
        )
    model = EASE(posB=False, verbose=False, **settings)
    model.fit(cornac(liked(train), shape))
    return {"scores": lambda users: model.U[users] @ model.B}


TOOLS = {
    "SMURFF": smurff,
    "myFM": myfm,
    "LIBMF": libmf,
    "LensKit, biased MF": lenskit,
    "implicit, ALS": implicit,
    "Cornac, MF": cornac_mf,
    "Cornac, EASE^R": cornac_ease,
}


def read(path):
    """Users, items and values of a file, (n,) each."""
    users, items, values = np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
    return users.astype(np.int64), items.astype(np.int64), values


def main(name, settings, train_file, test_file, out, began):
    """Fit, and write the results."""
    train = read(train_file)
    test = read(test_file)
    shape = tuple(int(max(train[side].max(), test[side].max())) + 1 for side in (0, 1))
    watch = Watch(test[2], float(began))
    results = TOOLS[name](train, test, shape, watch, **json.loads(settings))
    begin = time.time()
    if "scores" in results:
        results["lists"] = best(results.pop("scores"), train, shape)
        watch.spent += time.time() - begin
    peak = Path("/proc/self/status").read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0]
    np.savez(
        out, curve=watch.curve, draws=watch.draws, watching=watch.spent, peak=int(peak), **results
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
