"""Run a recommender that people use on a split: python others_run.py NAME SPLIT.npz RESULT.json.

Runs in its own environment, without dsgmcmc. Each function below is the code of a user: it takes training ratings
(users, items, values), the shape of the matrix and one setting, and returns two functions: predicted ratings of pairs,
or None if the tool has none, and scores of all items for users. The setting is chosen on a tenth of the
training ratings, by RMSE where there is one, else by NDCG@10; seconds, memory and results are those of one more fit,
with the processes that the tool starts.
"""

from __future__ import annotations

import json
import sys
import warnings
from os import sysconf
from pathlib import Path
from time import perf_counter

import numpy as np
from scipy import sparse

warnings.filterwarnings("ignore")
RANK, THREADS, TOP, LIKED = 32, 2, 10, 4.0


def matrix(train, shape, values=None):
    """Training ratings, or other values of these pairs, as a sparse matrix of users and items."""
    return sparse.csr_matrix((train[2] if values is None else values, (train[0], train[1])), shape=shape)


def of_factors(w, h, mean=0.0):
    """Predictions and scores from factors of users and items, (n, RANK) each, or with biases in one more column."""
    if w.shape[1] > RANK:
        ones = [np.ones((len(side), 1)) for side in (w, h)]
        w, h = np.hstack([w, ones[0]]), np.hstack([h[:, :RANK], ones[1], h[:, RANK:]])
    return lambda users, items: mean + (w[users] * h[items]).sum(axis=1), lambda users: mean + w[users] @ h.T


def implicit_fit(train, shape, model):
    """Fit one of the models of implicit to the liked ratings."""
    liked = [part[train[2] >= LIKED] for part in train]
    model.fit(matrix(liked, shape, np.ones(len(liked[0]))), show_progress=False)
    return None, lambda users: model.user_factors[users] @ model.item_factors.T


def implicit_als(train, shape, alpha):
    """ALS [Hu 2008] of implicit."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(factors=RANK, alpha=alpha, random_state=0, num_threads=THREADS)
    return implicit_fit(train, shape, model)


def implicit_bpr(train, shape, rate):
    """BPR of implicit."""
    from implicit.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(RANK, learning_rate=rate, random_state=0, num_threads=THREADS)
    return implicit_fit(train, shape, model)


def lenskit_biased_mf(train, shape, penalty):
    """LensKit's biased matrix factorisation by ALS."""
    import pandas as pd
    from lenskit.als import BiasedMFScorer
    from lenskit.data import ItemList, from_interactions_df
    from lenskit.training import TrainingOptions

    data = from_interactions_df(pd.DataFrame({"user_id": train[0], "item_id": train[1], "rating": train[2]}))
    model = BiasedMFScorer(embedding_size=RANK, regularization=penalty)
    model.train(data, TrainingOptions(rng=0))
    everything = ItemList(item_ids=np.arange(shape[1]))

    def scores(users):
        return np.nan_to_num(np.array([model(user, everything).scores() for user in users]), nan=train[2].mean())

    def predict(users, items):
        whose, place = np.unique(users, return_inverse=True)
        return scores(whose.tolist())[place, items]

    return predict, lambda users: scores(users.tolist())


def spark_als(train, shape, penalty):
    """Spark's ALS, on this machine alone."""
    from pyspark.ml.recommendation import ALS
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master(f"local[{THREADS}]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    rows = list(zip(*(part.tolist() for part in train), strict=True))
    model = ALS(rank=RANK, regParam=penalty, seed=0).fit(session.createDataFrame(rows, ["user", "item", "rating"]))
    factors = []
    for table, n in zip((model.userFactors, model.itemFactors), shape, strict=True):
        whole = np.zeros((n, RANK))
        for row in table.collect():
            whole[row["id"]] = row["features"]
        factors.append(whole)
    return of_factors(*factors)


def cornac_data(train, shape):
    """Ratings as Cornac has them."""
    from cornac.data import Dataset

    names = ({row: row for row in range(n)} for n in shape)
    users, items = (part.astype(np.int64) for part in train[:2])
    return Dataset(*shape, *names, (users, items, train[2]), seed=0)


def cornac_mf(train, shape, penalty):
    """Cornac's biased matrix factorisation by SGD."""
    from cornac.models import MF

    model = MF(k=RANK, lambda_reg=penalty, num_threads=THREADS, seed=0).fit(cornac_data(train, shape))
    sides = (model.u_factors, model.u_biases), (model.i_factors, model.i_biases)
    return of_factors(*map(np.column_stack, sides), mean=train[2].mean())


def cornac_ease(train, shape, penalty):
    """Cornac's EASE^R [Steck 2019] on the liked ratings."""
    from cornac.models import EASE

    users, items, values = (part[train[2] >= LIKED] for part in train)
    model = EASE(lamb=penalty, posB=False, verbose=False)
    model.fit(cornac_data((users, items, np.ones_like(values)), shape))
    return None, lambda users: model.U[users] @ model.B


#: Functions and the settings that are tried.
TOOLS = {
    "implicit ALS": (implicit_als, (1.0, 5.0, 20.0)),
    "implicit BPR": (implicit_bpr, (0.01, 0.05)),
    "LensKit biased MF": (lenskit_biased_mf, (0.05, 0.1, 0.3)),
    "Spark ALS": (spark_als, (0.05, 0.1, 0.2)),
    "Cornac MF": (cornac_mf, (0.02, 0.05, 0.1)),
    "Cornac EASE": (cornac_ease, (100.0, 300.0, 1000.0)),
}


def best(scores, rated):
    """The first items of every user, without those that are rated: (n, TOP)."""
    scores = np.array(scores, float)
    scores[rated.nonzero()] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")[:, :TOP]


def ndcg(lists, liked):
    """NDCG of lists (n, TOP) against liked (n, items), over users who like something."""
    gains = 1 / np.log2(np.arange(2, TOP + 2))
    hits = np.take_along_axis(liked.toarray(), lists, axis=1) @ gains
    most = np.minimum(np.asarray(liked.sum(axis=1)).ravel().astype(int), TOP)
    some = most > 0
    return float((hits[some] / np.cumsum(gains)[most[some] - 1]).mean())


def scores_of(fitted, train, test, shape):
    """RMSE, None without predicted ratings, and NDCG@10."""
    predict, scores = fitted
    rmse = None if predict is None else float(np.sqrt(np.mean((predict(test[0], test[1]) - test[2]) ** 2)))
    liked, rated = matrix([part[test[2] >= LIKED] for part in test], shape) > 0, matrix(train, shape)
    lists = [best(scores(some), rated[some]) for some in np.array_split(np.arange(shape[0]), max(1, shape[0] // 500))]
    return rmse, ndcg(np.concatenate(lists), liked)


def used(process="self"):
    """Processor seconds of a process and of those that it started, and the most memory that they had, in bytes."""
    here = Path("/proc") / process
    ticks = (here / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
    peak, *_ = (here / "status").read_text(encoding="utf-8").partition("VmHWM:")[2].split() or [0]  # it may have ended
    started = [name for task in (here / "task").iterdir() for name in (task / "children").read_text().split()]
    own = sum(map(int, ticks)) / sysconf("SC_CLK_TCK"), 1024 * int(peak)
    seconds, memory = zip(own, *map(used, started), strict=True)
    return sum(seconds), sum(memory)


def validated(tool, settings, train, shape):
    """Return the setting that does best on a tenth of the training ratings."""
    inner = np.random.default_rng(0).random(len(train[0])) < 0.1
    parts = [[part[chosen] for part in train] for chosen in (~inner, inner)]

    def loss(setting):
        rmse, score = scores_of(tool(parts[0], shape, setting), *parts, shape)
        return -score if rmse is None else rmse

    return min(settings, key=loss)


def main(name, split, out):
    """Choose the setting, fit once more, and write the results."""
    with np.load(split) as arrays:
        shape = tuple(int(n) for n in arrays["shape"])
        train, test = ([arrays[f"{part}_{k}"] for k in ("users", "items", "values")] for part in ("train", "test"))
    tool, settings = TOOLS[name]
    chosen = validated(tool, settings, train, shape)
    wall, (cpu, _) = perf_counter(), used()
    fitted = tool(train, shape, chosen)
    seconds, (both, peak) = perf_counter() - wall, used()
    rmse, score = scores_of(fitted, train, test, shape)
    result = {"setting": chosen, "rmse": rmse, "ndcg": score, "seconds": seconds, "cpu": both - cpu, "peak": peak}
    Path(out).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
