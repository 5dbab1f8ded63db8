"""Run what people use for recommendations on a split: python others_run.py NAME SPLIT.npz RESULT.json [SETTING].

Runs in an environment of its own, without dsgmcmc. Each function below is what a user writes: it takes training ratings
(users, items, values), the matrix's shape and one of the function's settings, and returns two functions: predicted
ratings of pairs, or None where it has none, and scores of all items for users. If no setting is given, it is chosen on
a tenth of the training ratings, by RMSE where there is one, else by NDCG@10; seconds, memory and results are those of
one more fit, with the processes that the tool starts.
"""

from __future__ import annotations

import inspect
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
STEPS, DRAWS = 2000, 200  # of ADVI; of NUTS, after as many of warm-up


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

    draws = model.predictor_.samples  # by `predict` the scores of all items take minutes

    def scores(users):
        both = ((np.split(each.w, shape[:1]), np.split(each.V, shape[:1])) for each in draws)
        return sum(a[users][:, None] + b + w[users] @ h.T for (a, b), (w, h) in both) / len(draws)

    return lambda users, items: model.predict(encode(users, items)), scores


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


def of_draws(train, w, h):
    """Predictions and scores from draws (d, n, RANK + 1) of both sides, whose last column has the biases."""
    mean = train[2].mean()

    def predict(users, items):
        pairs = (w[:, users, :-1] * h[:, items, :-1]).sum(axis=2) + w[:, users, -1] + h[:, items, -1]
        return mean + pairs.mean(axis=0)

    def scores(users):
        products = np.einsum("duk,dik->ui", w[:, users, :-1], h[:, :, :-1]) / len(w)
        return mean + products + w[:, users, -1].mean(axis=0)[:, None] + h[:, :, -1].mean(axis=0)

    return predict, scores


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

    return model


def numpyro_advi(train, shape, rate):
    """By mean-field ADVI."""
    import jax
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.optim import Adam

    guide = AutoNormal(numpyro_model(train, shape), init_scale=0.05)
    found = SVI(guide.model, guide, Adam(rate), Trace_ELBO()).run(jax.random.PRNGKey(0), STEPS, progress_bar=False)
    return of_draws(train, *(np.asarray(guide.median(found.params)[name])[None] for name in ("w", "h")))


def numpyro_nuts(train, shape, depth):
    """By NUTS, 200 draws after as many of warm-up."""
    import jax
    from numpyro.infer import MCMC, NUTS, init_to_sample

    kernel = NUTS(numpyro_model(train, shape), max_tree_depth=depth, init_strategy=init_to_sample)
    chain = MCMC(kernel, num_warmup=DRAWS, num_samples=DRAWS, progress_bar=False)
    chain.run(jax.random.PRNGKey(0))
    return of_draws(train, *(np.asarray(chain.get_samples()[name]) for name in ("w", "h")))


def pymc_model(train, shape):
    """The same model as ours, for PyMC."""
    import pymc as pm

    with pm.Model() as model:
        sides = []
        for name, n in (("w", shape[0]), ("h", shape[1])):
            sd = pm.HalfNormal(f"{name}_sd", 1.0, shape=RANK + 1)
            start = np.random.default_rng(n).normal(0, 0.1, (n, RANK + 1))  # its own is 0, where gradients vanish
            sides.append(pm.Normal(name, 0, sd, shape=(n, RANK + 1), initval=start))
        (w, h), noise = sides, pm.HalfNormal("noise", 1.0)
        left, right = w[train[0]], h[train[1]]
        eta = (left[:, :-1] * right[:, :-1]).sum(axis=1) + left[:, -1] + right[:, -1]
        pm.Normal("x", train[2].mean() + eta, noise, observed=train[2])
    return model


def pymc_advi(train, shape, rate):
    """By mean-field ADVI."""
    import pymc as pm

    with pymc_model(train, shape):
        found = pm.fit(STEPS, obj_optimizer=pm.adam(learning_rate=rate), random_seed=0, progressbar=False)
        draws = found.sample(20, random_seed=0).posterior
    return of_draws(train, draws["w"].values[0], draws["h"].values[0])


def pymc_nuts(train, shape, depth):
    """By NUTS, 200 draws after as many of warm-up."""
    import pymc as pm

    with pymc_model(train, shape):
        settings = {"tune": DRAWS, "chains": 1, "nuts": {"max_treedepth": depth}, "random_seed": 0}
        draws = pm.sample(DRAWS, progressbar=False, compute_convergence_checks=False, **settings).posterior
    return of_draws(train, draws["w"].values[0], draws["h"].values[0])


def surprise_fit(train, shape, model):
    """Fit one of Surprise's models; its factors and biases of all users and items, zeros for those without ratings."""
    import pandas as pd
    from surprise import Dataset, Reader

    frame = pd.DataFrame(dict(zip(("user", "item", "rating"), train, strict=True)))
    scale = Reader(rating_scale=(train[2].min(), train[2].max()))
    data = Dataset.load_from_df(frame, scale).build_full_trainset()
    model.fit(data)
    sides = []
    for n, name, found, bias in (
        (shape[0], data.to_raw_uid, model.pu, model.bu),
        (shape[1], data.to_raw_iid, model.qi, model.bi),
    ):
        whole = np.zeros((n, RANK + 1))
        whole[[name(row) for row in range(len(found))]] = np.column_stack([found, bias])
        sides.append(whole)
    return data, sides


def surprise_svd(train, shape, penalty):
    """Surprise's SVD: biased matrix factorisation by SGD."""
    from surprise import SVD

    _, (w, h) = surprise_fit(train, shape, SVD(n_factors=RANK, reg_all=penalty, random_state=0))
    return of_draws(train, w[None], h[None])


def surprise_svdpp(train, shape, penalty):
    """Surprise's SVD++ [Koren 2008], in which users also have the factors of the items that they rated."""
    from surprise import SVDpp

    model = SVDpp(n_factors=RANK, reg_all=penalty, random_state=0)
    data, (w, h) = surprise_fit(train, shape, model)
    implicit = np.zeros((shape[1], RANK))
    implicit[[data.to_raw_iid(row) for row in range(len(model.yj))]] = model.yj
    rated = matrix(train, shape, np.ones(len(train[0])))
    w[:, :-1] += (rated @ implicit) / np.sqrt(np.maximum(rated.sum(axis=1), 1)).reshape(-1, 1)
    return of_draws(train, w[None], h[None])


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
    w = np.column_stack([model.u_factors, model.u_biases])[None]
    h = np.column_stack([model.i_factors, model.i_biases])[None]
    return of_draws(train, w, h)


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
    "myFM": (myfm_gibbs, (8, 32)),
    "LIBMF": (libmf, (0.03, 0.05, 0.1)),
    "SMURFF": (smurff_gibbs, (8, 32)),
    "NumPyro ADVI": (numpyro_advi, (0.01, 0.03)),
    "PyMC ADVI": (pymc_advi, (0.01, 0.03)),
    "Surprise SVD": (surprise_svd, (0.02, 0.05, 0.1)),
    "Surprise SVD++": (surprise_svdpp, (0.02, 0.05, 0.1)),
    "Cornac MF": (cornac_mf, (0.02, 0.05, 0.1)),
    "Cornac EASE": (cornac_ease, (100.0, 300.0, 1000.0)),
    "NumPyro NUTS": (numpyro_nuts, (8,)),
    "PyMC NUTS": (pymc_nuts, (8,)),
}
#: What users write besides, by the first word of the name.
BESIDES = {
    "NumPyro": (numpyro_model, of_draws),
    "PyMC": (pymc_model, of_draws),
    "Surprise": (surprise_fit, of_draws),
    "Cornac": (cornac_data, of_draws),
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


def rmse_of(fitted, test):
    """RMSE, None without predicted ratings."""
    predict, _ = fitted
    return None if predict is None else float(np.sqrt(np.mean((predict(test[0], test[1]) - test[2]) ** 2)))


def ndcg_of(fitted, train, test, shape):
    """NDCG@10."""
    _, scores = fitted
    liked, rated = matrix([part[test[2] >= LIKED] for part in test], shape) > 0, matrix(train, shape)
    lists = [best(scores(some), rated[some]) for some in np.array_split(np.arange(shape[0]), max(1, shape[0] // 500))]
    return ndcg(np.concatenate(lists), liked)


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
    found = {}
    for setting in settings:
        fitted = tool(parts[0], shape, setting)
        found[setting] = rmse_of(fitted, parts[1]) or -ndcg_of(fitted, *parts, shape)
    return min(found, key=found.get)


def main(name, split, out, given=None):
    """Choose the setting, if none is given, fit once more, and write what comes out."""
    with np.load(split) as arrays:
        shape = tuple(int(n) for n in arrays["shape"])
        train, test = ([arrays[f"{part}_{k}"] for k in ("users", "items", "values")] for part in ("train", "test"))
    tool, settings = TOOLS[name]
    chosen = validated(tool, settings, train, shape) if given is None else json.loads(given)
    wall, (cpu, _) = perf_counter(), used()
    fitted = tool(train, shape, chosen)
    seconds, (both, peak) = perf_counter() - wall, used()
    rmse, score = rmse_of(fitted, test), ndcg_of(fitted, train, test, shape)
    written = [tool, *BESIDES.get(name.split()[0], ())]
    lines = [line for each in written for line in inspect.getsource(each).splitlines()[2:] if line.strip()]
    result = {"setting": chosen, "rmse": rmse, "ndcg": score, "seconds": seconds, "cpu": both - cpu, "peak": peak}
    Path(out).write_text(json.dumps(result | {"lines": len(lines)}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
