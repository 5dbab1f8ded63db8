r"""Alpha-stable matrix factorisation of a spectrogram [Simsekli 2016, section 4.2], of one source
or several.

The short-time Fourier transform X of a signal, (I, J) complex, is the sum of sources with exponents
alpha_c,

    X_ij = sum_c S_cij,    S_cij ~ SaS_c(lambda_cij^(1 / alpha_c))
    lambda_c = W_c H_c,    W_c, H_c >= 0;

of one source that is eq. 14 of the paper. As a scale mixture of normal laws, eq. 15,

    S_cij ~ N_c(0, Phi_cij lambda_cij^(2 / alpha_c)),
    Phi_cij ~ S(alpha_c / 2, 1, 2 cos(pi alpha_c / 4)^(2 / alpha_c), 0),

with v of N_c(0, v) the variance of the real and of the imaginary part (derived below). The paper
prints (cos(pi alpha) / 4)^(2 / alpha), a root of a negative number at its alpha of 1.2. Priors are
the generalised gamma laws of eq. 14,

    p(w) ~ w^(-2 a / alpha - 1) exp(-(b / w)^(2 / alpha)).

theta is [W_c, unless it is given, and H_c], source after source. Reflection at zero, the paper's
mirroring, is the target's, as of `latent_dirichlet`: |theta| is a chain reflected at zero. Below b
/ 10, where there is no mass, the prior's energy goes on as a straight line, so that steps stay
finite. Data are numbered in an arbitrary order: those of a part lie anywhere in X.

Two gradients. `gradient_given` is that of the paper: given Phi, which `latent` draws by Metropolis
steps from its prior. `energy` and `gradient` have Phi summed out, by a quadrature of `nodes` points
for every source.

Positive stable variables make heavy-tailed laws of normal ones. P > 0 with the exponent 0 < a < 1
has E exp(-s P) = exp(-s^a). A normal pair of variance v lambda^(2 / alpha), with v = 2 P and a =
alpha / 2, has the characteristic function of an isotropic alpha-stable law,

    E exp(-|z|^2 v lambda^(2/alpha) / 2) = exp(-lambda |z|^alpha).

In the usual parameters P is S(a, 1, sigma, 0) with sigma = cos(pi a / 2)^(1 / a), since that law
has E exp(-s P) = exp(-(sigma s)^a / cos(pi a / 2)) [Samorodnitsky 1994, proposition 1.2.12]. With
the [Kanter 1975] function

    A(u) = sin((1 - a) u) sin(a u)^(a / (1 - a)) / sin(u)^(1 / (1 - a)),

P is (A(U) / E)^((1 - a) / a), of U uniform on (0, pi) and E exponential; so Pr(P <= x) is the mean
over U of exp(-A(U) x^(-a / (1 - a))).

[Samorodnitsky 1994] G. Samorodnitsky, M. Taqqu: Stable non-Gaussian random processes. [Kanter 1975]
M. Kanter: Stable densities under change of scale and total variation inequalities. [Simsekli 2016]
U. Simsekli, R. Badeau, A. T. Cemgil, G. Richard: Stochastic quasi-Newton Langevin Monte Carlo.
ICML.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, softmax

from dsgmcmc.densities.density import ALL, Data
from dsgmcmc.types import Float64

#: Below any scale; its powers are numbers, too.
TINY = 1e-30
#: Log odds of the first and the last node: one in 3,000 lies below, one in 160,000 above.
ODDS = (-8.0, 12.0)
#: Points of the quadrature over U, and of the table of the distribution function.
ANGLES = 500
TABLE = 3000


def positive_stable(a: float, shape: tuple[int, ...], generator: np.random.Generator) -> Float64:
    """Draw an array of P of the exponent `a`."""
    angle = np.pi * generator.random(shape)
    exponential = generator.exponential(size=shape)
    return np.exp((1 - a) / a * (_log_kanter(a, angle) - np.log(exponential)))


def stable_nodes(a: float, nodes: int) -> tuple[Float64, Float64]:
    """Values of P and their weights, (nodes,) each: the trapezoidal rule over the log odds of Pr(P
    <= x).
    """
    log_kanter = _log_kanter(a, (np.arange(ANGLES) + 0.5) * np.pi / ANGLES)
    # a / (1 - a) times log P
    x = log_kanter.min() + np.linspace(-5, 5 + 1.2 * ODDS[1] / (1 - a), TABLE)
    below = np.exp(-np.exp(np.minimum(log_kanter - x[:, None], 700.0))).mean(axis=1)
    odds = 1 / (1 + np.exp(-np.linspace(*ODDS, nodes)))
    weights = odds * (1 - odds)
    return np.exp((1 - a) / a * np.interp(odds, below, x)), weights / weights.sum()


def _log_kanter(a: float, u: Float64) -> Float64:
    """Logarithm of A(u)."""
    return np.log(np.sin((1 - a) * u)) + (a * np.log(np.sin(a * u)) - np.log(np.sin(u))) / (1 - a)


class Source(NamedTuple):
    """One of the sources of a spectrogram.

    Attributes
    ----------
    alpha : float
        Exponent, above 0 and below 2.
    basis : int, or (I, K) array
        Number K of columns of W, or W itself if it is known.
    """

    alpha: float
    basis: int | Float64


class _Place(NamedTuple):
    """Where factors are: W from `begin` of theta on, unless it is `known`, and H from `middle` to
    `end`.
    """

    known: Float64 | None
    columns: int
    begin: int
    middle: int
    end: int


class StableFactors:
    """Nonnegative factors of a spectrogram; a density as `latent.Latent` wants it.

    Parameters
    ----------
    spectrogram : (I, J) complex array
        X.
    sources : sequence of Source
        What it is a sum of.
    shape, scale : float
        a and b of the priors of all entries, `scale` in units of what chains start about.
    nodes : int
        Points of the quadrature over Phi of each source.

    Attributes
    ----------
    start : (D,) float64
        What chains start about: factors by which every source has an equal share of the typical
        size of X, those of a W that is not known times 1/2 to 3/2.
    """

    def __init__(
        self,
        spectrogram: npt.ArrayLike,
        sources: Sequence[Source],
        *,
        shape: float = 0.5,
        scale: float = 0.1,
        nodes: int = 24,
    ) -> None:
        x = np.asarray(spectrogram, np.complex128)
        self.alphas = np.array([source.alpha for source in sources], np.float64)
        (self.rows, self.frames) = x.shape
        self.n_data = x.size
        self.n_latent = len(sources)
        self.order = np.random.default_rng(0).permutation(x.size)
        self.halves = 0.5 * np.abs(x.ravel()[self.order]) ** 2
        self.shape = float(shape)
        self._places = list(self._laid_out(sources))
        self.dimension = self._places[-1].end
        self.powers = np.concatenate(
            [
                np.full(p.end - p.begin, 2 / a)
                for p, a in zip(self._places, self.alphas, strict=True)
            ]
        )
        self.prior_mean = np.zeros(self.dimension)
        self.prior_precision = np.zeros(self.dimension)
        self.start = np.empty(self.dimension)
        self.curvature = np.empty(self.dimension)
        self._begin()
        self.unit = scale * self.start
        values, weights = zip(
            *(stable_nodes(alpha / 2, nodes) for alpha in self.alphas), strict=True
        )
        self.nodes = 2 * np.array(list(product(*values)))
        self.log_weights = np.log(list(product(*weights))).sum(axis=1)

    def _laid_out(self, sources: Sequence[Source]) -> Iterator[_Place]:
        """Places of the factors, one source after another."""
        begin = 0
        for _, basis in sources:
            if isinstance(basis, int):
                known = None
                columns = basis
                middle = begin + self.rows * basis
            else:
                known = np.asarray(basis, np.float64)
                columns = known.shape[1]
                middle = begin
            yield _Place(known, columns, begin, middle, end := middle + columns * self.frames)
            begin = end

    def _begin(self) -> None:
        """Where chains start, and the Fisher information there, given Phi."""
        size = np.median(self.halves[self.halves > 0]) / self.n_latent
        rng = np.random.default_rng(0)
        for place, alpha in zip(self._places, self.alphas, strict=True):
            per_column = size ** (alpha / 2) / place.columns
            if place.known is None:
                drawn = rng.uniform(0.5, 1.5, (self.rows, place.columns))
                self.start[place.begin : place.middle] = np.sqrt(per_column) * drawn.ravel()
                self.start[place.middle : place.end] = np.sqrt(per_column)
            else:
                self.start[place.middle : place.end] = per_column / max(place.known.mean(), TINY)
        share = (2 / self.alphas / self.n_latent) ** 2
        for place, (w, h), each in zip(
            self._places, self.factors(self.start[None]), share, strict=True
        ):
            per_square = each / np.maximum(w @ h, TINY)[0] ** 2
            self.curvature[place.middle : place.end] = (w[0].T ** 2 @ per_square).ravel()
            if place.known is None:
                self.curvature[place.begin : place.middle] = (per_square @ h[0].T ** 2).ravel()

    # ------------------------------------------------------------------ factors

    def factors(self, theta: Float64) -> list[tuple[Float64, Float64]]:
        """W (n, I, K) and H (n, K, J) of every source, of theta (n, D)."""
        size = np.abs(theta)
        n = len(theta)
        found = []
        for place in self._places:
            free = size[:, place.begin : place.middle].reshape(n, self.rows, -1)
            w = free if place.known is None else place.known[None]
            found.append(
                (w, size[:, place.middle : place.end].reshape(n, place.columns, self.frames))
            )
        return found

    def _lambdas(self, theta: Float64, data: Data) -> Float64:
        """Lambda of some data and every source, (n, S, L)."""
        chosen = self.order[data]
        found = [(w @ h).reshape(len(theta), -1)[:, chosen] for w, h in self.factors(theta)]
        return np.maximum(np.stack(found, axis=2), TINY)

    def _to_factors(self, theta: Float64, slopes: Float64, data: Data) -> Float64:
        """Derivatives in |theta|, (n, D), of a sum over data whose derivatives in lambda are (n, S,
        L).
        """
        n = len(theta)
        found = np.empty_like(theta)
        for k, (place, (w, h)) in enumerate(zip(self._places, self.factors(theta), strict=True)):
            whole = np.zeros((n, self.n_data))
            whole[:, self.order[data]] = slopes[:, :, k]
            cells = whole.reshape(n, self.rows, self.frames)
            found[:, place.middle : place.end] = (w.swapaxes(1, 2) @ cells).reshape(n, -1)
            if place.known is None:
                found[:, place.begin : place.middle] = (cells @ h.swapaxes(1, 2)).reshape(n, -1)
        return found

    def _with_prior(self, theta: Float64, slopes: Float64, data: Data) -> Float64:
        """Gradient of the energy of some data and of their share of the prior, (n, D)."""
        share = len(self.order[data]) / self.n_data
        found = self._to_factors(theta, slopes, data) + share * self._prior_slope(np.abs(theta))
        return np.sign(theta) * found

    def _prior_slope(self, size: Float64) -> Float64:
        """Derivative of the prior's energy at |theta|, constant below a tenth of its unit."""
        at = np.maximum(size, 0.1 * self.unit)
        return (self.shape * self.powers + 1 - self.powers * (self.unit / at) ** self.powers) / at

    def _prior(self, size: Float64) -> Float64:
        """Energy of the prior at |theta|, (n,)."""
        at = np.maximum(size, 0.1 * self.unit)
        energy = (self.shape * self.powers + 1) * np.log(at) + (self.unit / at) ** self.powers
        return (energy + self._prior_slope(size) * (size - at)).sum(axis=1)

    # ------------------------------------------------------------------ given Phi

    def draw_latent(self, shape: tuple[int, int], generator: np.random.Generator) -> Float64:
        """Phi from its prior: see `latent.Latent`."""
        return 2 * np.stack(
            [positive_stable(alpha / 2, shape, generator) for alpha in self.alphas], axis=2
        )

    def given(self, theta: Float64, data: Data = ALL) -> Callable[[Float64], Float64]:
        """See `latent.Latent`."""
        sizes = self._lambdas(theta, data) ** (2 / self.alphas)
        halves = self.halves[data]

        def energies(latent: Float64) -> Float64:
            v = (latent * sizes).sum(axis=2)
            return np.log(v) + halves / v

        return energies

    def gradient_given(self, theta: Float64, latent: Float64, data: Data = ALL) -> Float64:
        """See `latent.Latent`."""
        lambdas = self._lambdas(theta, data)
        each = latent * lambdas ** (2 / self.alphas)
        v = each.sum(axis=2, keepdims=True)
        slopes = (1 - self.halves[data][:, None] / v) / v * each * (2 / self.alphas) / lambdas
        return self._with_prior(theta, slopes, data)

    # ------------------------------------------------------------------ Phi summed out

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """See `dsgmcmc.densities.density.Density.energy`, with the data's share of the prior."""
        share = len(self.order[data]) / self.n_data
        found = share * self._prior(np.abs(theta))
        for row, lambdas in enumerate(self._lambdas(theta, data)):
            found[row] -= logsumexp(self._over_nodes(lambdas, data)[0], axis=1).sum()
        return found

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """See `dsgmcmc.densities.density.Density.gradient`."""
        down, up = self._slopes(theta, data)
        return self._with_prior(theta, down - up, data)

    def pulls(self, theta: Float64) -> tuple[Float64, Float64]:
        """What lowers the energy of theta (n, D) > 0 where an entry grows, and what raises it:
        positive, (n, D) each.

        Their difference is minus the gradient; modes are where they are equal, as multiplicative
        updates need it.
        """
        (down, up) = self._slopes(theta, ALL)
        at = np.maximum(theta, 0.1 * self.unit)
        rising = (self.shape * self.powers + 1) / at
        falling = self.powers * (self.unit / at) ** self.powers / at
        return (
            self._to_factors(theta, up, ALL) + falling,
            self._to_factors(theta, down, ALL) + rising,
        )

    def metric(self, theta: Float64) -> tuple[Float64, Float64]:
        """See `dsgmcmc.densities.density.Riemannian.metric`: theta^2, that of scales."""
        return np.abs(theta), np.sign(theta)

    def _slopes(self, theta: Float64, data: Data) -> tuple[Float64, Float64]:
        """Derivatives of log v and of -|x|^2 / (2 v) in lambda, in expectation over Phi given X:
        (n, S, L) each.
        """
        every = self._lambdas(theta, data)
        down = np.empty_like(every)
        up = np.empty_like(every)
        for row, lambdas in enumerate(every):
            weights, v = self._weights(lambdas, data)
            of_v = weights / v
            inner = (2 / self.alphas) * lambdas ** (2 / self.alphas - 1)
            down[row] = of_v @ self.nodes * inner
            up[row] = (of_v * self.halves[data][:, None] / v) @ self.nodes * inner
        return down, up

    def separate(self, theta: Float64) -> Float64:
        """Share of every source in X given theta and X, in expectation over Phi: (n, I, J, L), with
        the sum 1.
        """
        found = np.empty((len(theta), self.n_data, self.n_latent))
        for row, lambdas in enumerate(self._lambdas(theta, ALL)):
            weights, v = self._weights(lambdas, ALL)
            found[row, self.order] = (weights / v) @ self.nodes * lambdas ** (2 / self.alphas)
        return found.reshape(len(theta), self.rows, self.frames, self.n_latent)

    def _over_nodes(self, lambdas: Float64, data: Data) -> tuple[Float64, Float64]:
        """Logarithm of weight times density at every node, up to a constant, and the variance v:
        (S, nodes) each.
        """
        v = lambdas ** (2 / self.alphas) @ self.nodes.T
        return self.log_weights - np.log(v) - self.halves[data][:, None] / v, v

    def _weights(self, lambdas: Float64, data: Data) -> tuple[Float64, Float64]:
        """Probabilities of the nodes given X, and v: (S, nodes) each."""
        log_joint, v = self._over_nodes(lambdas, data)
        return softmax(log_joint, axis=1), v
