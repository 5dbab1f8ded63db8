r"""HAMCMC: stochastic quasi-Newton Langevin Monte Carlo, with one reduction per step.

[Simsekli 2016, algorithm 1]; docs/hamcmc.md has settings, exactness and costs.

    theta_t = theta_{t-M} - eps H_t grad U~_t(theta_{t-M}) + sqrt(2 eps) S_t z,      H_t = S_t S_t^T

H_t is the L-BFGS inverse Hessian of the M - 1 pairs tau = t-M+1 .. t-1,

    s_tau = theta_tau - theta_{tau-M}
    y_tau = grad U~_tau(theta_tau) - grad U~_tau(theta_{tau-M}) + trust B^0 s_tau

both gradients on the same part, starting from H^0, whose inverse is B^0. With p = s / (s.y), q = y
- sqrt(s.y / s.Bs) B s and the direct BFGS matrix B, S <- (I - p q^T) S. [Simsekli 2016, eq. 11]
prints q with the opposite sign, and s.By for s.Bs; as printed, S S^T is not H.

There are M interleaved sub-chains: theta_t continues theta_{t-M}. The first 2M + 1 states come from
SGLD steps (H = H^0): each of the first M continues the previous state, later states continue their
sub-chain.

[Nocedal 1980] J. Nocedal. Updating quasi-Newton matrices with limited storage. Mathematics of
Computation 35, 1980
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import gcd, sqrt
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gradients import PartGradient
from dsgmcmc.samplers.metrics import Fisher
from dsgmcmc.samplers.step_policy import BelowTau
from dsgmcmc.samplers.step_size import TauStep
from dsgmcmc.settings import named
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import ParameterBlock, Replicated, StateField
from dsgmcmc.types import Float64, Shapes

PAIR_PRODUCTS = ("sy", "yhy", "sbs")  # products of pairs with pairs, kept between iterations
COEFFICIENTS = ("a", "b", "e")  # of the pairs' vectors, in `two_loops` and `square_root`
DEFAULT_STEPS = {"identity": 0.9, "diagonal": 0.04, "fisher": 0.03}


class HAMCMCConfig(TauStep):
    """Configuration of HAMCMC; `step_size` is eps gamma u.

    gamma is 1 / u unless given, where u = max(count / p_t), as for SGLD, or, with the diagonal
    metric, N max(1, B / 4), as for PSGLD, or 1 with the Fisher metric, as for SGRLD. So settings
    carry over between data sets, and without pairs the algorithm is one of these samplers. H^0 is
    gamma I, gamma / (lambda_v + sqrt v) with v as in PSGLD (from the gradient with the prior), or
    gamma / (l_i P_ik) in the notation of `dsgmcmc.samplers.metrics`.

    With trust = 1 and a convex U, no pair gives U less curvature than B^0 does. A smaller trust
    lets pairs lengthen the steps where U is flat; eps must then be smaller, for the directions in
    which U is steep.
    """

    step_size: float = Field(
        DEFAULT_STEPS["identity"], gt=0, description="step; diagonal metric: 0.04, fisher: 0.03"
    )
    memory: int = Field(2, ge=2, le=10, description="M, the number of interleaved sub-chains")
    gamma: float | None = Field(None, gt=0, description="scale of H^0; default 1 / u")
    trust: float = Field(1.0, gt=0, description="keeps H below H^0 / trust along the pairs")
    metric: Literal["identity", "diagonal", "fisher"] = Field(
        "identity", description="H^0, before the pairs"
    )
    alpha: float = Field(0.99, gt=0, lt=1, description="memory of v, with the diagonal metric")
    lambda_n: float = Field(9.0, gt=0, description="lambda_v N, with the diagonal metric")

    @property
    @override
    def in_units_of_tau(self) -> bool:
        return self.metric == "identity" and self.gamma is None

    @model_validator(mode="before")
    @classmethod
    def _step_of_metric(cls, settings: Any) -> Any:
        if settings.get("metric") in DEFAULT_STEPS:
            return {"step_size": DEFAULT_STEPS[settings["metric"]], **settings}
        return settings


@dataclass
class PairProducts(Replicated):
    """Dot products of the m pairs, (m, m), indexed by slot, and the number of pairs left out, (1,).

    `sy` has s_i . y_j, `yhy` has y_i . H^0 y_j, and `sbs` has s_i . B^0 s_j.
    """

    saved_as: ClassVar[dict[str, str]] = {
        **{name: f"pairs.{name}" for name in PAIR_PRODUCTS},
        "skipped": "skipped_pairs",
    }

    sy: Float64
    yhy: Float64
    sbs: Float64
    skipped: Float64


class HAMCMC(Sampler[HAMCMCConfig, Target]):
    """Hessian-approximated MCMC.

    *In one reduction.* All vectors of the recursions lie in the span of {s_i, y_i, g, z} and, with
    a diagonal metric, of these vectors times H^0. So a block forms its partial dot products in
    float64, one ordered reduction adds them, the recursions run on coefficients (`two_loops`,
    `square_root`), and each block forms its new state in one pass. z is not stored, but generated
    again from its counter. Products of old pairs are kept from earlier iterations, unless the
    metric has changed. Pairs with s.y <= 0.1 trust s.B^0 s are left out, and counted.

    Target: the posterior as eps -> 0, for a quadratic U: H_t does not involve theta_{t-M}. It does
    depend on earlier states of that sub-chain through s_{t-1}, so that for other targets a small
    bias remains, contrary to the paper's theorem 1 (docs/papers/what-is-here.md). Metrics must be
    frozen when burn-in ends.
    """

    Config = HAMCMCConfig
    Steps = BelowTau
    gradients = ("part", "control-variate")
    scratch = ("g", "g2")

    def __init__(self, config: HAMCMCConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.memory = config.memory
        self.pairs = config.memory - 1
        zeros = np.zeros((self.pairs, self.pairs))
        self.products = PairProducts(zeros, zeros, zeros, np.zeros(1))
        self.replicated = (self.products,)
        self.fisher: Fisher | None = None
        if config.metric == "fisher":
            self.fisher = Fisher()
            self.replicated = (self.products, self.fisher)
        #: Formulas of products that involve the newest pair, and of all products, for a metric that
        #: has changed.
        self._new_products = self._products(lambda a, b: self.pairs - 1 in (a, b))
        self._all_products = self._products(lambda a, b: True)
        self._move = self._formula_of_move()
        #: Formula of the new y: the difference of the gradients plus trust B^0 s.
        self._new_pair = self._formula(f"{self._h}\ny0 = grad - g + trust * b * s0")
        #: Shapes of the arrays that `_solve` returns.
        self._solution: Shapes = {
            **dict.fromkeys(PAIR_PRODUCTS, (self.pairs, self.pairs)),
            "skipped": (1,),
            **dict.fromkeys(COEFFICIENTS, (self.pairs,)),
        }

    @classmethod
    @override
    def check(cls, config: HAMCMCConfig, schedule: str, grid: int, thin: int) -> None:
        """Refuse schedules with some parts for a sub-chain, and thinning that omits sub-chains."""
        m = config.memory
        if schedule == "cyclic" and gcd(m, grid) > 1:
            raise InputError(
                f"with schedule=cyclic and grid {grid}, a sub-chain of HAMCMC visits only"
                f" {grid // gcd(m, grid)} of the parts: use schedule=shuffled, or a memory and a"
                " grid without a common factor"
            )
        if gcd(m, thin) > 1:
            raise InputError(
                f"thin = {thin} iterations would keep draws of only {m // gcd(m, thin)} of the {m}"
                f" sub-chains of HAMCMC: use a number that has no common factor with {m}, such as"
                f" {named('thin')} {thin + 1}"
            )

    @classmethod
    @override
    def default_thin(cls, config: HAMCMCConfig, grid: int) -> int:
        """Number of iterations in about two sweeps, coprime to the memory."""
        return next(n for n in range(2 * grid, 4 * grid + 20) if gcd(n, config.memory) == 1)

    # ------------------------------------------------------------------ state

    @property
    @override
    def positions(self) -> tuple[str, ...]:
        return tuple(f"theta{m}" for m in range(self.memory))

    @property
    @override
    def fields(self) -> tuple[StateField, ...]:
        """M states, M - 1 pairs (s, y), and the fields of the metric."""
        names = [*self.positions]
        names += [f"{name}{slot}" for name in "sy" for slot in range(self.pairs)]
        if self.config.metric == "diagonal":
            names.append("v")
        fields = [StateField(name) for name in names]
        if self.fisher is not None:
            fields += self.fisher.fields
        return tuple(fields)

    @override
    def start(self, target: Target, sd: float) -> None:
        """Draw the initial state, from which all sub-chains start."""
        self.start_field(target, self.positions[-1], sd)

    def _slot(self, iteration: int, age: int) -> int:
        """Slot of the pair from iteration - (M - 1) + age.

        The new pair will replace the oldest pair, of age 0.
        """
        return (iteration + age) % self.pairs

    @override
    def metrics(self) -> dict[str, float]:
        """Number of curvature pairs left out so far, and the entries of the gradient estimator."""
        return {"skipped_pairs": float(self.products.skipped[0]), **super().metrics()}

    # ------------------------------------------------------------------ one iteration

    @override
    def step(self, target: Target, iteration: int) -> None:
        """Run one step of one sub-chain, on every row, with the gradient of this iteration's part.

        Collective.
        """
        gradient = self.gradient
        assert isinstance(gradient, PartGradient)
        here = self.position(iteration)
        source = here
        if iteration < self.memory:  # the sub-chain begins at the previous state
            source = self.position(iteration - 1)
        changing = self.config.metric != "identity" and iteration < self.burn_in
        self._refresh_fisher(target, iteration, source)
        values: dict[str, Any] = self._pair_fields(iteration) | self._scalars(target, iteration)
        products = self._new_products
        if changing:
            products = self._all_products
        partials = {}
        gradient.begin(target, source)
        for cell in target.visit():
            gradient.take(target, cell, source, prior=False)
            for block in cell.blocks:
                vectors = self._vectors(target, block)
                sums = block.update(products, theta=source, **values, **vectors)
                partials[block] = {"products": np.array([sums[name] for name in products.sums])}
        solve = partial(self._solve, iteration, products.sums)
        solution = target.sum(partials, solve, self._solution)
        values |= self._combine(solution, values["eps"])
        for cell in target.visit(send=True):
            for block in cell.blocks:
                if source != here:
                    block[here][:] = block[source]
                block.update(self._move, theta=here, **values, **self._vectors(target, block))
            # the gradient at the new state, on the same part, before the next blocks are sent
            gradient.take(target, cell, here, "g2", prior=False, errors=False)
            for block in cell.blocks:
                vectors = self._vectors(target, block)
                block.update(self._new_pair, theta=here, **values, **vectors)
        gradient.finish(target)

    def _refresh_fisher(self, target: Target, iteration: int, source: str) -> None:
        """Compute the Fisher metric at the start, and every second sweep of burn-in."""
        if self.fisher is None:
            return
        due = iteration < self.burn_in and iteration % (2 * target.sweep_length) == 0
        if iteration == 0 or due:
            self.fisher.compute(target, position=source)

    def _pair_fields(self, iteration: int) -> dict[str, str]:
        """Fields of the pairs by their names in formulas, which number them by age."""
        fields = {"g": "g"}
        for age in range(self.pairs):
            slot = self._slot(iteration, age)
            fields |= {f"s{age}": f"s{slot}", f"y{age}": f"y{slot}"}
        return fields

    def _scalars(self, target: Target, iteration: int) -> dict[str, float]:
        """Numbers in the formulas of an iteration."""
        config = self.config
        n = target.n_data
        units = {
            "identity": target.curvature_bound,
            "diagonal": n * max(1.0, target.sweep_length / 4),
            "fisher": 1.0,
        }
        unit = units[config.metric]
        gamma = config.gamma
        if gamma is None:
            gamma = 1.0 / unit
        alpha = config.alpha
        if iteration == 0:
            alpha = 0.0
        elif iteration >= self.burn_in:
            alpha = 1.0
        size = config.limited(self.step_size(target, iteration), target.noise_precision)
        return {
            "eps": size / (gamma * unit),
            "trust": config.trust,
            "per_gamma": 1.0 / gamma,
            "lambda_v": config.lambda_n / n,
            "alpha": alpha,
            "per_n": 1.0 / n,
        }

    def _vectors(self, target: Target, block: ParameterBlock) -> dict[str, Any]:
        """The Fisher metric's values in a block's formulas."""
        if self.fisher is None:
            return {}
        return self.fisher.values(target, block, 1.0)

    def _solve(
        self, iteration: int, names: tuple[str, ...], total: dict[str, Float64]
    ) -> dict[str, Float64]:
        """Compute the coefficients from the summed dot products; runs at the root.

        `names` lists the products in order.
        """
        m = self.pairs
        sums = dict(zip(names, total["products"].tolist(), strict=True))
        slots = np.array([self._slot(iteration, age) for age in range(m)])
        products = {name: getattr(self.products, name).copy() for name in PAIR_PRODUCTS}
        for name, i, j in product(PAIR_PRODUCTS, range(m), range(m)):
            if f"{name}_{i}_{j}" in sums:
                products[name][slots[i], slots[j]] = sums[f"{name}_{i}_{j}"]
        started = iteration >= 2 * self.memory + 1
        least = 0.1 * self.config.trust * np.diag(products["sbs"])
        good = (np.diag(products["sy"]) > least)[slots]
        skipped = self.products.skipped + float(started and not good[-1])
        use = np.flatnonzero(good & started)
        sy, yhy, sbs = (products[name][slots[use]][:, slots[use]] for name in PAIR_PRODUCTS)

        def with_vector(name: str) -> Float64:
            """Products of the used pairs with the gradient, or with the noise."""
            return np.array([sums[f"{name}_{i}"] for i in use])

        a = np.zeros(m)
        b = np.zeros(m)
        e = np.zeros(m)
        a[use], b[use] = two_loops(sy, yhy, with_vector("sg"), with_vector("yhg"))
        e[use] = square_root(sy, sbs, with_vector("yrz"), with_vector("sbrz"))
        return {**products, "skipped": skipped, "a": a, "b": b, "e": e}

    def _combine(self, solution: dict[str, Float64], eps: float) -> dict[str, float]:
        """Store the pairs' products; return the coefficients of the basis vectors in a move.

        The move is -eps H g + sqrt(2 eps) S z.
        """
        for name in (*PAIR_PRODUCTS, "skipped"):
            setattr(self.products, name, solution[name])
        a, b, e = (solution[name] for name in COEFFICIENTS)
        noise = sqrt(2 * eps)
        basis = {"drift": -eps, "noise": noise}
        for age in range(self.pairs):
            basis[f"ks{age}"] = float(-eps * b[age] + noise * e[age])
            basis[f"ky{age}"] = float(-eps * a[age])
        return basis

    # ------------------------------------------------------------ formulas, by the age of the pairs

    @property
    def _h(self) -> str:
        """Source code for d, the diagonal of H^0, and b = 1 / d."""
        b = {
            "identity": "b = per_gamma",
            "diagonal": "b = (lambda_v + sqrt(v)) * per_gamma",
            "fisher": f"{Fisher.source}b = per_gamma / (step * step)",
        }
        return b[self.config.metric] + "\nd = 1 / b"

    def _formula(self, source: str, sums: tuple[str, ...] = ()) -> Formula:
        if self.fisher is None:
            return Formula(source, sums=sums)
        return Formula(source, columns=Fisher.columns, rows=Fisher.rows, sums=sums)

    def _products(self, included: Callable[[int, int], bool]) -> Formula:
        """Formula that copies the gradient to g, updates v, and sums dot products of the pairs.

        The products are those with g, with z and with each other. `included` says whether the
        products of two pairs, given by their ages, are computed.
        """
        ages = range(self.pairs)
        lines = ["g = grad"]
        if self.config.metric == "diagonal":  # alpha = 1 leaves v unchanged
            lines += ["v = alpha * v + (1 - alpha) * (g * per_n) * (g * per_n)"]
        terms = {}
        for a, b in product(ages, repeat=2):
            if included(a, b):
                terms[f"sy_{a}_{b}"] = f"s{a} * y{b}"
                terms[f"yhy_{a}_{b}"] = f"y{a} * d * y{b}"
                terms[f"sbs_{a}_{b}"] = f"s{a} * b * s{b}"
        for a in ages:
            terms[f"sg_{a}"] = f"s{a} * g"
            terms[f"yhg_{a}"] = f"y{a} * d * g"
            terms[f"yrz_{a}"] = f"y{a} * r * z"
            terms[f"sbrz_{a}"] = f"s{a} * b * r * z"
        lines += [self._h, "r = sqrt(d)", *(f"{name} = {term}" for name, term in terms.items())]
        return self._formula("\n".join(lines), sums=tuple(terms))

    def _formula_of_move(self) -> Formula:
        """Formula of theta <- theta - eps H g + sqrt(2 eps) S z; the step replaces the oldest s."""
        ages = range(self.pairs)
        inside = " + ".join(["drift * g", *(f"ky{a} * y{a}" for a in ages)])
        move = " + ".join(
            [f"d * ({inside})", "noise * sqrt(d) * z", *(f"ks{a} * s{a}" for a in ages)]
        )
        return self._formula(f"{self._h}\nmove = {move}\ntheta = theta + move\ns0 = move")


# ---------------------------------------------------------------------- L-BFGS on coefficients


def two_loops(sy: Float64, yhy: Float64, sg: Float64, yhg: Float64) -> tuple[Float64, Float64]:
    """Compute H g = H^0 (g + sum a_i y_i) + sum b_i s_i by the two-loop recursion [Nocedal 1980].

    Parameters
    ----------
    sy, yhy : (m, m) float64
        s_i . y_j and y_i . H^0 y_j, the oldest pair first; s_i . y_i is positive.
    sg, yhg : (m,) float64
        s_i . g and y_i . H^0 g.

    Returns
    -------
    a, b : (m,) float64
    """
    m = len(sg)
    alpha = np.zeros(m)
    b = np.zeros(m)
    for i in reversed(range(m)):  # q = g - sum alpha_j y_j
        alpha[i] = (sg[i] - sy[i] @ alpha) / sy[i, i]
    for i in range(m):  # r = H^0 q + sum b_j s_j
        beta = (yhg[i] - yhy[i] @ alpha + sy[:, i] @ b) / sy[i, i]
        b[i] = alpha[i] - beta
    return -alpha, b


def square_root(sy: Float64, sbs: Float64, yrz: Float64, sbrz: Float64) -> Float64:
    """Compute S z = r z + sum e_i s_i with r r = H^0, by S <- (I - p q^T) S.

    The notation is that at the head of the module. B is the direct BFGS matrix; B s_i lies in the
    span of {B^0 s_j, y_j}: rows of `u` and `w`.

    Parameters
    ----------
    sy, sbs : (m, m) float64
        s_i . y_j and s_i . B^0 s_j, the oldest pair first; s_i . y_i is positive.
    yrz, sbrz : (m,) float64
        y_i . r z and s_i . B^0 r z.

    Returns
    -------
    e : (m,) float64
    """
    m = len(yrz)
    u = np.zeros((m, m))  # B_i s_i = sum u_ij B^0 s_j + sum w_ij y_j
    w = np.zeros((m, m))
    curvature = np.zeros(m)  # s_i . B_i s_i
    e = np.zeros(m)
    for i in range(m):
        u[i, i] = 1.0
        for j in range(i):  # B <- B - B s s^T B / s.Bs + y y^T / s.y
            s_b_s = u[j] @ sbs[:, i] + w[j] @ sy[i]  # s_i . B_j s_j
            u[i] -= s_b_s / curvature[j] * u[j]
            w[i] -= s_b_s / curvature[j] * w[j]
            w[i, j] += sy[i, j] / sy[j, j]
        curvature[i] = u[i] @ sbs[:, i] + w[i] @ sy[i]
        root = np.sqrt(sy[i, i] / curvature[i])
        # q_i . (S z so far), with S z so far = r z + sum e_j s_j
        y_z = yrz[i] + sy[:, i] @ e
        b_z = u[i] @ (sbrz + sbs @ e) + w[i] @ (yrz + sy.T @ e)
        e[i] = -(y_z - root * b_z) / sy[i, i]
    return e
