"""Metropolis steps of a regression that look at few data, in one compiled loop over iterations [Cornish 2019].

Energies U_i(theta) = u(x_i . theta, y_i) are expanded to order k about an anchor theta^; with v = theta - theta^,
d = x_i . v and R_i what is left of U_i after the terms of orders 0 to k, the factor of a datum rejects at the rate

    lambda_i = max(R_i(theta') - R_i(theta), 0)  <=  phi psi_i

psi_i = sup |u^(k + 1)| c_i^(k + 1) / (k + 1)!, and phi = |v' - v| for k = 0, else |v|^(k + 1) + |v'|^(k + 1), with a
norm and lengths c_i for which |x_i . v| <= c_i |v|. Candidates come as a Poisson process of rate phi sum psi over a
unit of time, each of datum i with probability psi_i / sum psi (alias table); a candidate rejects with probability
lambda_i / (phi psi_i). None does with probability exp(-sum lambda_i).

Where phi sum psi reaches a limit, the step is one of plain Metropolis-Hastings, which looks at all data.

Noise: one Philox counter a (chain, iteration, draw), with the row of theta in its second word. Draws 0, 1, ... make the
proposal, then one decides on what needs no data, and then there is one for each candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dsgmcmc.kernels.philox import NoiseKey, noise_words
from dsgmcmc.kernels.thinning_loop import thinning_module
from dsgmcmc.types import Float64, Int64


class Tables(NamedTuple):
    """What the kernel reads, none of which changes.

    Attributes
    ----------
    features, responses : (N, D) and (N,) float64
        The data.
    taylor : (N, 4) float64
        x_i . theta^, and u and its first two derivatives there.
    psi : (N,) float64
        See above.
    chance, alias : (N,) float64 and int64
        Alias table of psi.
    total : float
        Sum of psi.
    anchor : (D,) float64
        theta^.
    white : (D, D) float64
        Matrix of which the norm is taken of the product with v.
    linear, quadratic : (2, D) and (2, D, D) float64
        Energy that needs no data, b.v + v.A v / 2: for plain Metropolis-Hastings and for this order; without what the
        proposal has for its own.
    keep, centre, root : float64, (D,) and (D, D) float64
        Proposal v' = centre + keep (v - centre) + root z.
    """

    features: Float64
    responses: Float64
    taylor: Float64
    psi: Float64
    chance: Float64
    alias: Int64
    total: float
    anchor: Float64
    white: Float64
    linear: Float64
    quadratic: Float64
    keep: float
    centre: Float64
    root: Float64


class Thinning(NamedTuple):
    """The kernel for one regression.

    Attributes
    ----------
    value, third : callable
        u and its third derivative, ``f(eta, y, shape)`` in NumPy's functions, each defined by ``def`` in a file.
    shape : float
        Parameter of the link.
    order : int
        k, from 0 to 2.
    euclidean : bool
        Whether the norm is the Euclidean one, else the sum of sizes.
    limit : float
        phi sum psi from which on a step is plain Metropolis-Hastings.
    tables : Tables
        What it reads.
    """

    value: Callable[..., Any]
    third: Callable[..., Any]
    shape: float
    order: int
    euclidean: bool
    limit: float
    tables: Tables

    def iterate(self, theta: Float64, energies: Float64, counts: Float64, key: NoiseKey, count: int) -> None:
        """Make iterations; the arrays are changed.

        Parameters
        ----------
        theta : (n, D) float64
            Independent chains.
        energies : (n,) float64
            Energy of all data at theta, NaN where it is not known.
        counts : (n, 3) float64
            Moves, evaluations of energies of a datum, and steps of plain Metropolis-Hastings, which are added to.
        key : NoiseKey
            Of the first iteration.
        count : int
            How many.

        Raises
        ------
        ValueError
            More than 2^16 rows, or a member of the key is too large.
        """
        if len(theta) > 1 << 16:
            raise ValueError(f"{len(theta)} rows have no counters of their own: at most 2^16")
        _, c1, _, c3, k0, k1 = noise_words(key._replace(iteration=0))
        settings = (self.order, self.euclidean, self.limit, self.shape)
        thinning_module(self.value, self.third).iterate(
            theta, energies, counts, key.iteration, count, c1, c3, k0, k1, *settings, *self.tables
        )

    def judge(self, theta: Float64, proposed: Float64) -> tuple[float, float]:
        """Expected candidates for a proposal (D,) at theta (D,), and the probability that it is accepted."""
        t = self.tables
        arrays = (t.features, t.responses, t.taylor, t.total, t.anchor, t.white, t.linear, t.quadratic)
        settings = (self.order, self.euclidean, self.limit, self.shape)
        expected, probability = thinning_module(self.value, self.third).judge(theta, proposed, *settings, *arrays)
        return float(expected), float(probability)
