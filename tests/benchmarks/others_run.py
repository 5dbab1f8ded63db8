"""Run what people use for recommendations on a split in plain arrays: python others_run.py NAME SPLIT.npz RESULT.npz.

Runs in an environment of its own, without dsgmcmc. Each function below is what a user writes: it takes training ratings
(users, items, values), the matrix's shape and one of the function's settings, and returns two functions: predicted
ratings of pairs, or None where it has none, and scores of all items for users. The setting is chosen on a tenth of the
training ratings, by RMSE where there is one, else by NDCG@10; seconds, memory and results are those of one more fit.
"""

from __future__ import annotations

import inspect
import json
import resource
import sys
import warnings
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from scipy import sparse

warnings.filterwarnings("ignore")
RANK, THREADS, TOP, LIKED = 32, 2, 10, 4.0


def matrix(train, shape, values=None):
    """Training ratings, or what stands for them, as a sparse matrix of users and items."""
    return sparse.csr_matrix((train[2] if values is None else values, (train[0], train[1])), shape=shape)


def implicit_als(train, shape, alpha):
    """Implicit's ALS [Hu 2008] on the liked ratings."""
    from implicit.als import AlternatingLeastSquares

    liked = [part[train[2] >= LIKED] for part in train]
    model = AlternatingLeastSquares(factors=RANK, alpha=alpha, random_state=0, num_threads=THREADS)
    model.fit(matrix(liked, shape, np.ones(len(liked[0]))), show_progress=False)
    return None, lambda users: model.user_factors[users] @ model.item_factors.T


def implicit_bpr(train, shape, rate):
    """Implicit's BPR on the liked ratings."""
    from implicit.bpr import BayesianPersonalizedRanking

    liked = [part[train[2] >= LIKED] for part in train]
    model = BayesianPersonalizedRanking(RANK, learning_rate=rate, random_state=0, num_threads=THREADS)
    model.fit(matrix(liked, shape, np.ones(len(liked[0]))), show_progress=False)
    return None, lambda users: model.user_factors[users] @ model.item_factors.T


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
    w, h = factors
    return lambda users, items: (w[users] * h[items]).sum(axis=1), lambda users: w[users] @ h.T


def myfm_gibbs(train, shape, rank):
    """MyFM's Gibbs sampler on the two one-hot encodings, 100 draws."""
    from myfm import MyFMGibbsRegressor

    def encode(users, items):
        both = np.stack([users, items + shape[0]], axis=1).ravel()
        return sparse.csr_matrix((np.ones(len(both)), both, np.arange(0, len(both) + 1, 2)), (len(users), sum(shape)))

    model = MyFMGibbsRegressor(rank=rank, random_seed=1)
    model.fit(encode(train[0], train[1]), train[2], n_iter=120, n_kept_samples=100, group_shapes=list(shape))

    def predict(users, items):
        return model.predict(encode(users, items))

    def scores(users):
        pairs = np.repeat(users, shape[1]), np.tile(np.arange(shape[1]), len(users))
        return predict(*pairs).reshape(len(users), -1)

    return predict, scores


def libmf(train, shape, penalty):
    """LIBMF's SGD."""
    from libmf.mf import MF

    model = MF(k=RANK, nr_threads=THREADS, nr_iters=30, quiet=True, lambda_p2=penalty, lambda_q2=penalty)
    model.fit(np.stack(train, axis=1).astype(np.float32))
    w, h = (np.nan_to_num(each) for each in (model.p_factors(), model.q_factors()))
    w, h = (np.vstack([each, np.zeros((n - len(each), RANK))]) for each, n in zip((w, h), shape, strict=True))
    return lambda users, items: (w[users] * h[items]).sum(axis=1), lambda users: w[users] @ h.T


def smurff_gibbs(train, shape, rank):
    """SMURFF's BPMF, with its adaptive noise, 100 draws."""
    import tempfile

    import smurff

    mean = train[2].mean()
    with tempfile.TemporaryDirectory() as folder:
        session = smurff.TrainSession(
            priors=["normal", "normal"],
            num_latent=rank,
            num_threads=THREADS,
            burnin=20,
            nsamples=100,
            seed=1,
            verbose=0,
            save_freq=1,
            save_name=f"{folder}/run.hdf5",
        )
        session.addTrainAndTest(matrix(train, shape, train[2] - mean).tocoo(), None, smurff.AdaptiveNoise(1.0, 10.0))
        session.run()
        draws = [sample.latents for sample in session.makePredictSession().samples]

    def predict(users, items):
        return mean + sum((w[users] * h[items]).sum(axis=1) for w, h in draws) / len(draws)

    return predict, lambda users: mean + sum(w[users] @ h.T for w, h in draws) / len(draws)


def numpyro_model(train, shape):
    """The same model as ours, for NumPyro."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    mean, (users, items, ratings) = train[2].mean(), (jnp.array(part) for part in train)

    def model():
        sides = []
        for name, n in (("w", shape[0]), ("h", shape[1])):
            sd = numpyro.sample(f"{name}_sd", dist.HalfNormal(jnp.ones(RANK + 1)).to_event(1))
            sides.append(numpyro.sample(name, dist.Normal(0, sd).expand([n, RANK + 1]).to_event(2)))
        (w, h), noise = sides, numpyro.sample("noise", dist.HalfNormal(1.0))
        eta = (w[users, :-1] * h[items, :-1]).sum(axis=1) + w[users, -1] + h[items, -1]
        numpyro.sample("x", dist.Normal(mean + eta, noise), obs=ratings)

    def fitted(w, h):
        """Predictions and scores from draws (d, n, RANK + 1) of both sides."""

        def predict(some, others):
            pairs = (w[:, some, :-1] * h[:, others, :-1]).sum(axis=2) + w[:, some, -1] + h[:, others, -1]
            return mean + pairs.mean(axis=0)

        def scores(some):
            products = np.einsum("duk,dik->ui", w[:, some, :-1], h[:, :, :-1]) / len(w)
            return mean + products + w[:, some, -1].mean(axis=0)[:, None] + h[:, :, -1].mean(axis=0)

        return predict, scores

    return model, fitted


def numpyro_advi(train, shape, rate):
    """By mean-field ADVI."""
    import jax
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.optim import Adam

    model, fitted = numpyro_model(train, shape)
    guide = AutoNormal(model, init_scale=0.05)
    found = SVI(model, guide, Adam(rate), Trace_ELBO()).run(jax.random.PRNGKey(0), 2000, progress_bar=False)
    return fitted(*(np.asarray(guide.median(found.params)[name])[None] for name in ("w", "h")))


def numpyro_nuts(train, shape, depth):
    """By NUTS, 200 draws after as many of warm-up."""
    import jax
    from numpyro.infer import MCMC, NUTS, init_to_sample

    model, fitted = numpyro_model(train, shape)
    kernel = NUTS(model, max_tree_depth=depth, init_strategy=init_to_sample)
    chain = MCMC(kernel, num_warmup=200, num_samples=200, progress_bar=False)
    chain.run(jax.random.PRNGKey(0))
    return fitted(*(np.asarray(chain.get_samples()[name]) for name in ("w", "h")))


#: Functions and the settings that are tried.
TOOLS = {
    "implicit ALS": (implicit_als, (1.0, 5.0, 20.0)),
    "implicit BPR": (implicit_bpr, (0.01, 0.05)),
    "LensKit biased MF": (lenskit_biased_mf, (0.05, 0.1, 0.3)),
    "Spark ALS": (spark_als, (0.05, 0.1, 0.2)),
    "myFM": (myfm_gibbs, (8, 32)),
    "LIBMF": (libmf, (0.03, 0.05, 0.1)),
    "SMURFF": (smurff_gibbs, (8, 32)),
    "NumPyro ADVI": (numpyro_advi, (0.01, 0.03)),
    "NumPyro NUTS": (numpyro_nuts, (8,)),
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


def judged(fitted, train, test, shape):
    """RMSE, None without predicted ratings, and NDCG@10."""
    predict, scores = fitted
    rmse = None if predict is None else float(np.sqrt(np.mean((predict(test[0], test[1]) - test[2]) ** 2)))
    liked, rated = matrix([part[test[2] >= LIKED] for part in test], shape) > 0, matrix(train, shape)
    lists = [best(scores(some), rated[some]) for some in np.array_split(np.arange(shape[0]), max(1, shape[0] // 500))]
    return rmse, ndcg(np.concatenate(lists), liked)


def main(name, split, out):
    """Choose the setting, fit once more, and write what comes out."""
    with np.load(split) as arrays:
        shape = tuple(int(n) for n in arrays["shape"])
        train, test = ([arrays[f"{part}_{k}"] for k in ("users", "items", "values")] for part in ("train", "test"))
    tool, settings = TOOLS[name]
    inner = np.random.default_rng(0).random(len(train[0])) < 0.1
    parts = [[part[chosen] for part in train] for chosen in (~inner, inner)]
    found = {setting: judged(tool(parts[0], shape, setting), *parts, shape) for setting in settings}
    chosen = min(found, key=lambda setting: found[setting][0] or -found[setting][1])
    wall, cpu = perf_counter(), process_time()
    fitted = tool(train, shape, chosen)
    seconds, used = perf_counter() - wall, process_time() - cpu
    rmse, score = judged(fitted, train, test, shape)
    written = [tool, numpyro_model] if name.startswith("NumPyro") else [tool]
    lines = [line for each in written for line in inspect.getsource(each).splitlines()[2:] if line.strip()]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result = {"setting": chosen, "rmse": rmse, "ndcg": score, "seconds": seconds, "cpu": used, "peak": peak}
    Path(out).write_text(json.dumps(result | {"lines": len(lines)}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
