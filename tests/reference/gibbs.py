"""Exact Gibbs sampling of the posterior that ``dsgmcmc`` samples: the oracle of the statistical
tests.

Target: x_ij ~ N(mu + a_i + b_j + W_i . H_j, 1 / (tau g_i g'_j)); mu is the training mean (0 if not
centred). theta_i = (W_i, a_i) has D = K + 1 columns, or D = K without biases. One sweep draws, in
this order,

- theta of all rows, then of all columns: N(P^-1 v, P^-1) with f_j = (H_j, 1), w_ij = tau g_i g'_j,
  P = Lambda + sum_j w_ij f_j f_j^T and v = Lambda m + sum_j w_ij (x_ij - mu - b_j) f_j
  [Salakhutdinov 2008, eq. 11-13];
- their priors N(m, Lambda^-1): ``fixed``, ``half-cauchy``, ``normal-gamma`` or ``normal-wishart``
  (see `draw_prior`);
- g_i ~ Gamma((nu + n_i) / 2, rate (nu + tau SSE_i) / 2), SSE_i weighted by g'; then g' alike; nu,
  where it is sampled, before g with g integrated out;
- ``coupled``: rows with a g have the prior N(m, (g_i Lambda)^-1), so that n_i + D is in the place
  of n_i, and (theta_i - m)^T Lambda (theta_i - m) is added to tau SSE_i;
- ``size_moves``: a column of theta, its m and its sd s times c (see `move_sizes`);
- tau ~ Gamma(1 + N / 2, rate 1 + SSE / 2), SSE weighted by g g'.

One process, double precision, written to be checked rather than to be fast.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import gammaln
from scipy.stats import betaprime, invgamma, wishart

from dsgmcmc.diagnostics import scores

#: Prior support of a sampled nu, equally likely each; from 4 on 1 / g has a variance.
NU_GRID = 2.0 ** np.arange(2, 10.5, 0.5)
#: Which sides have a g of each entity, rows being users.
NOISY_SIDES = {"shared": (), "by-user": (0,), "by-item": (1,), "both": (0, 1)}


class Model(NamedTuple):
    """What is sampled; ``tau`` and ``nu`` None means sampled, ``precision`` serves the fixed
    prior.
    """

    rank: int
    prior: str = "normal-gamma"
    biases: bool = True
    tau: float | None = None
    noise: str = "shared"
    nu: float | None = 8.0
    precision: float = 1.0
    coupled: bool = False  # g also scales the prior's precision
    standardised: bool = False  # the priors are those in units of the ratings' sd
    size_moves: bool = False  # columns also move together with their half-Cauchy priors


class View(NamedTuple):
    """The ratings seen from one side: entity ``entity[r]`` rated ``partner[r]``, sorted by
    ``entity``.
    """

    indptr: np.ndarray
    entity: np.ndarray
    partner: np.ndarray
    order: np.ndarray  # position of each rating in the row-wise order


@dataclasses.dataclass
class State:
    """Everything that a sweep draws; lists hold rows, then columns."""

    theta: list[np.ndarray]  # (n, D) each
    prior: list[tuple[np.ndarray, np.ndarray]]  # mean (D,) and precision (D, D) each
    g: list[np.ndarray]  # (n,) each
    nu: list[float]
    tau: float


@dataclasses.dataclass
class GibbsResult:
    """Posterior summaries; arrays over ``test`` are in its row-wise order, draws are those after
    burn-in.
    """

    rmse_mean: float  # of the posterior mean prediction
    tau: np.ndarray  # (draws,)
    sd: np.ndarray  # (n_test,) posterior sd of the predictor, without noise
    noise_variance: np.ndarray  # (n_test,) posterior mean of 1 / (tau g_i g'_j)


def draw_rows(indptr, other, targets, weights, features, precision, shift, z):
    """Draw theta of every row given the other side; all arrays float64, ``z`` (n, D) standard
    normal.
    """
    n, D = z.shape
    by_row = [
        csr_matrix((x, other, indptr), (n, len(features))) for x in (weights, weights * targets)
    ]
    outer = (features[:, :, None] * features[:, None, :]).reshape(len(features), D * D)
    lower = np.linalg.cholesky(precision + (by_row[0] @ outer).reshape(n, D, D))
    x = np.linalg.solve(lower, (shift + by_row[1] @ features)[:, :, None])
    return np.linalg.solve(lower.transpose(0, 2, 1), x + z[:, :, None])[
        :, :, 0
    ]  # mean P^-1 v, covariance P^-1


def predictor(theta, rank: int, rows, columns) -> np.ndarray:
    """W_i . H_j + a_i + b_j at every (rows[r], columns[r])."""
    w = theta[0][rows]
    h = theta[1][columns]
    return (
        np.einsum("nk,nk->n", w[:, :rank], h[:, :rank])
        + w[:, rank:].sum(axis=1)
        + h[:, rank:].sum(axis=1)
    )


def views(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> list[View]:
    """Both views of ratings that are sorted by row; rows and columns are (N,) int64."""
    order = np.argsort(columns, kind="stable")
    pairs = ((rows, columns, np.arange(len(rows))), (columns[order], rows[order], order))
    starts = [
        np.searchsorted(entity, np.arange(n + 1))
        for (entity, _, _), n in zip(pairs, shape, strict=True)
    ]
    return [View(indptr, *pair) for indptr, pair in zip(starts, pairs, strict=True)]


def common_scales(K: int) -> np.ndarray:
    """Equally likely values of the scale A of the half-Cauchy priors of a side's columns."""
    return 2.0 ** (np.arange(29) / 4 - 6) / np.sqrt(4 * np.sqrt(K))


def draw_prior(
    theta: np.ndarray, g: np.ndarray, model: Model, rng, current: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (D,) and precision (D, D) of one side's prior given its theta, scales g, (n,), and
    `current` precision.

    ``half-cauchy``: lambda_k^-1/2 is half-Cauchy of a scale A in `common_scales`, by an inverse
    gamma variable x_k: lambda_k | x_k ~ Gamma(1/2, rate 1 / x_k), x_k ~ InvGamma(1/2, 1 / A^2),
    hence x_k | lambda_k ~ InvGamma(1, lambda_k + 1 / A^2) [Wand 2011]; m_k | lambda_k ~ N(0, 1 /
    lambda_k).
    ``normal-gamma``: lambda_k ~ Gamma(1, rate 5), m_k ~ N(0, 1 / lambda_k) [Nemeth 2021, 6.3].
    ``normal-wishart``, on the K factors: Lambda ~ W(I, K), m ~ N(0, (2 Lambda)^-1) [Salakhutdinov
    2008, eq. 7 and 14]. A bias has m = 0 under every prior, and lambda ~ Gamma(1, rate 5) under
    these two. Of standardised ratings Gamma(4, rate 3 b) in place of Gamma(1, rate 5), b = 1 / (4
    sqrt K), and 1/8 of a bias.
    """
    n, D = theta.shape
    K = model.rank
    shape, rate, bias_rate = (
        (4, 3 / (4 * np.sqrt(max(K, 1))), 3 / 8) if model.standardised else (1, 5, 5)
    )
    mean = np.zeros(D)
    precision = model.precision * np.eye(D)
    if model.prior == "fixed":
        return mean, precision
    W = theta[:, :K]
    total = g.sum()
    centre = g @ W / total
    if model.prior in ("half-cauchy", "normal-gamma"):
        if model.prior == "half-cauchy":
            lambdas = np.diag(current)[:K]
            scales = common_scales(K)
            # of lambda, if its root has a half-Cauchy density in 1 / lambda: a beta prime density
            log_p = betaprime.logpdf(lambdas * scales[:, None] ** 2, 0.5, 0.5).sum(axis=1)
            log_p += 2 * K * np.log(scales)
            p = np.exp(log_p - log_p.max())
            a = rng.choice(scales, p=p / p.sum())
            auxiliary = invgamma.rvs(1, scale=lambdas + 1 / a**2, random_state=rng)
            shape, rate = 0.5, 1 / auxiliary
        rate = rate + g @ (W - centre) ** 2 / 2 + total * centre**2 / (2 * (total + 1))
        scales = rng.gamma(shape + n / 2, 1 / rate)
        mean[:K] = rng.normal(total * centre / (total + 1), 1 / np.sqrt((total + 1) * scales))
        precision[:K, :K] = np.diag(scales)
    else:
        spread = (g[:, None] * (W - centre)).T @ (W - centre)
        spread += 2 * total / (2 + total) * np.outer(centre, centre)
        drawn = wishart.rvs(K + n, np.linalg.inv(np.eye(K) + spread), random_state=rng)
        precision[:K, :K] = drawn = np.reshape(drawn, (K, K))
        mean[:K] = rng.multivariate_normal(
            total * centre / (2 + total), np.linalg.inv((2 + total) * drawn)
        )
    if model.biases:
        shape = 4 if model.standardised else 1
        precision[K, K] = rng.gamma(shape + n / 2, 1 / (bias_rate + g @ theta[:, K] ** 2 / 2))
    return mean, precision


def deviations(state: State, side: int) -> np.ndarray:
    """(theta_i - m)^T Lambda (theta_i - m) of one side's rows."""
    mean, precision = state.prior[side]
    offset = state.theta[side] - mean
    return ((offset @ precision) * offset).sum(axis=1)


def prior_scales(state: State, side: int, model: Model) -> np.ndarray:
    """What multiplies the precisions of one side's priors, (n,)."""
    if model.coupled and side in NOISY_SIDES[model.noise]:
        return state.g[side]
    return np.ones(len(state.g[side]))


def draw_noise(state: State, squared: np.ndarray, sides: list[View], model: Model, rng) -> None:
    """Draw nu, g of each side and tau in place, given the squared error of every training
    rating.
    """
    for side, view in enumerate(sides):
        if side not in NOISY_SIDES[model.noise]:
            continue
        n = np.diff(view.indptr)
        sse = state.tau * np.bincount(
            view.entity, squared[view.order] * state.g[1 - side][view.partner], len(n)
        )
        if model.coupled:
            n = n + state.theta[side].shape[1]
            sse = sse + deviations(state, side)
        if model.nu is None:
            half = NU_GRID[:, None] / 2
            log_p = gammaln(half + n / 2) - gammaln(half) + half * np.log(half)
            log_p = (log_p - (half + n / 2) * np.log(half + sse / 2)).sum(axis=1)
            p = np.exp(log_p - log_p.max())
            state.nu[side] = rng.choice(NU_GRID, p=p / p.sum())
        state.g[side] = rng.gamma((state.nu[side] + n) / 2, 2 / (state.nu[side] + sse))
    if model.tau is None:
        total = squared @ (state.g[0][sides[0].entity] * state.g[1][sides[0].partner])
        state.tau = rng.gamma(1 + len(squared) / 2, 1 / (1 + total / 2))


def draw_side(
    state: State, side: int, residuals: np.ndarray, view: View, model: Model, z: np.ndarray
) -> None:
    """Draw theta of one side in place, from standard normals ``z`` (n, D); residuals as in
    `sweep`.
    """
    features = state.theta[1 - side].copy()
    targets = residuals[view.order]
    if model.biases:
        targets = targets - features[view.partner, model.rank]
        features[:, model.rank] = 1
    weights = state.tau * state.g[side][view.entity] * state.g[1 - side][view.partner]
    mean, precision = state.prior[side]
    own = prior_scales(state, side, model)
    state.theta[side] = draw_rows(
        view.indptr,
        view.partner,
        targets,
        weights,
        features,
        own[:, None, None] * precision,
        own[:, None] * (precision @ mean),
        z,
    )


def move_sizes(state: State, residuals: np.ndarray, sides: list[View], model: Model, rng) -> None:
    """Draw the factors c_k of the columns k of one side, their m_k and their sds s_k, in place;
    then of the other side.

    With u_k ~ Exp(A^2 + s_k^2), c is normal: the coefficients of a regression of the ratings, less
    the biases, on the products x_k = W_k H_k, with the prior precisions 2 u_k s_k^2.
    """
    K = model.rank
    rows, columns = sides[0].entity, sides[0].partner
    weights = state.tau * state.g[0][rows] * state.g[1][columns]
    targets = residuals
    if model.biases:
        targets = targets - state.theta[0][rows, K] - state.theta[1][columns, K]
    for side in (0, 1):
        x = state.theta[0][rows, :K] * state.theta[1][columns, :K]
        mean, precision = state.prior[side]
        lambdas = np.diag(precision)[:K].copy()
        scales = common_scales(K)
        log_p = (np.log(scales[:, None]) - np.log(scales[:, None] ** 2 + 1 / lambdas)).sum(axis=1)
        p = np.exp(log_p - log_p.max())
        a = rng.choice(scales, p=p / p.sum())
        u = rng.exponential(1 / (a**2 + 1 / lambdas))
        covariance = np.linalg.inv((x.T * weights) @ x + np.diag(2 * u / lambdas))
        c = rng.multivariate_normal(covariance @ (x.T @ (weights * targets)), covariance)
        state.theta[side][:, :K] *= c
        mean[:K] *= c
        precision[range(K), range(K)] = lambdas / c**2


def sweep(state: State, residuals: np.ndarray, sides: list[View], model: Model, rng) -> None:
    """Draw everything once, in place; ``residuals`` (N,) are the ratings minus mu, in row-wise
    order.
    """
    for side, view in enumerate(sides):
        draw_side(state, side, residuals, view, model, rng.standard_normal(state.theta[side].shape))
    state.prior = [
        draw_prior(theta, prior_scales(state, side, model), model, rng, precision)
        for side, (theta, (_, precision)) in enumerate(zip(state.theta, state.prior, strict=True))
    ]
    if model.size_moves:
        move_sizes(state, residuals, sides, model, rng)
    errors = residuals - predictor(state.theta, model.rank, sides[0].entity, sides[0].partner)
    draw_noise(state, errors**2, sides, model, rng)


def start(model: Model, shape: tuple[int, int], rng) -> State:
    """Make the first state: theta ~ N(0, 0.1^2), everything else 1."""
    D = model.rank + model.biases
    return State(
        theta=[0.1 * rng.standard_normal((n, D)) for n in shape],
        prior=[(np.zeros(D), model.precision * np.eye(D)) for _ in shape],
        g=[np.ones(n) for n in shape],
        nu=[model.nu or NU_GRID[-1]] * 2,
        tau=model.tau or 1.0,
    )


def gibbs(train, test, model: Model, *, sweeps: int = 300, burn_in: int = 50) -> GibbsResult:
    """Sample the posterior given ``train`` and predict ``test``, each (rows, columns, values),
    sorted by row.

    If standardised, the ratings are divided by the root of their mean square about mu; what is
    said of ratings and tau is in the unit of the ratings, the factors are not.
    """
    rng = np.random.default_rng(0)
    (rows, columns, values) = train
    (test_rows, test_columns, test_values) = test
    shape = tuple(
        int(np.concatenate(pair).max()) + 1 for pair in ((rows, test_rows), (columns, test_columns))
    )
    values = np.asarray(values, np.float64)
    mu = values.mean()
    scale = np.sqrt(np.mean((values - mu) ** 2)) if model.standardised else 1.0
    sides = views(rows, columns, shape)
    state = start(model, shape, rng)
    sums = np.zeros((3, len(test_values)))
    tau = []
    for number in range(sweeps):
        sweep(state, (values - mu) / scale, sides, model, rng)
        if number >= burn_in:
            prediction = mu + scale * predictor(state.theta, model.rank, test_rows, test_columns)
            variance = scale**2 / (state.tau * state.g[0][test_rows] * state.g[1][test_columns])
            sums += prediction, prediction**2, variance
            tau.append(state.tau / scale**2)
    mean, square, noise_variance = sums / len(tau)
    sd = np.sqrt(np.maximum(square - mean**2, 0))
    return GibbsResult(scores.rmse(test_values, mean), np.array(tau), sd, noise_variance)
