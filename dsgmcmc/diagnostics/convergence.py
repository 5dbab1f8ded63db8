r"""Convergence of chains: R-hat and effective sample sizes (`dsgmcmc.diagnostics.mixing`).

They are computed for identified quantities (`dsgmcmc.posterior.traces`), never for raw factors.

The interleaved sub-chains of one chain (HAMCMC's) are treated as chains: from three sub-chains on, their common trace
has a comb-shaped autocorrelation, which estimators of ESS take for almost none.

R-hat and ESS assume equally weighted draws, and are withheld if weights differ. Neither detects the bias of a
stochastic-gradient sampler, whose chains agree on the wrong distribution just as well [Nemeth 2021, section 4].

*The accuracy at which chains end.* Shared parameters, such as thresholds and precisions, mix more slowly than
predictions, and many wander along directions that no prediction sees: thresholds with the means of the factors, a
precision of biases with these biases. What predictions see of all of them is how well a draw predicts the test ratings.
So the log likelihood of the test ratings at each draw is the shared parameter that a target looks at. It needs 1 /
`SHARED_FRACTION` of the accuracy of predictions, which tells a chain that has settled from one that still drifts, and
is not waited for once predictions are `ENOUGH_ALONE` times as accurate as wanted: docs/defaults.md has what waiting
gains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from dsgmcmc.config.accuracy import ESS_PER_CHAIN, LEAST_DRAWS, format_accuracy, parse_accuracy
from dsgmcmc.diagnostics import mixing
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import (
    PRIOR_SCALARS,
    TEST_LOG_LIKELIHOOD,
    draw_weights,
    labels,
    predictions,
    scalar_traces,
)
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.types import Float64

#: R-hat of chains that agree has a square of about 1 + x / E, x ~ chi^2_3 / 3 of two chains and E the ESS of half a
#: chain: at the default end of a run, E = 50, it is 1.01 on the average and above 1.05 once in a thousand times.
RHAT_LIMIT = 1.05
TO_ASK_FOR = 1.01  # R-hat to continue a run to
#: Fraction of the predictions that may miss the target. Where ratings are few, up to one in ten predictions
#: changes its level once in thousands of sweeps, and a run that waits for 95 % ends by chance (docs/defaults.md).
SPARED = 0.1
APART = 0.05  # fraction of the predictions above `RHAT_LIMIT` from which on chains do not agree
BIAS_NOTE = (
    "R-hat tells whether the chains agree, and ESS how many independent draws they are worth. Neither detects the bias "
    "of a stochastic-gradient sampler, which all chains share [Nemeth 2021, section 4]; calibration on test ratings, "
    "and a run with a smaller step, do."
)
#: Shared parameters need this fraction of the ESS, and this multiple of the excess of R-hat over 1.
SHARED_FRACTION = 10
ENOUGH_ALONE = 1.5
LABELS = {
    "rhat": ("R-hat", ".3f"),
    "ess": ("ESS", ".0f"),
    "shared_rhat": ("R-hat of the test log likelihood", ".3f"),
    "shared_ess": ("ESS of the test log likelihood", ".0f"),
}


def diagnose(run: Run) -> dict[str, Any]:
    """Diagnose the chains of a run.

    Returns
    -------
    dict
        ``chains``, ``draws`` (of each), ``withheld`` (why there is no R-hat or ESS, or None), ``quantities`` (a list of
        ``name, label, mean, sd, rhat, ess_bulk, ess_tail``), ``predictions`` (``pairs``, ``rhat`` and ``ess_bulk`` and
        ``ess_tail`` of each), ``warnings``, ``note``. Unknown values are None.
    """
    weights, traces = draw_weights(run), scalar_traces(run)
    chains, draws = weights.shape
    interleaved, withheld = _interleaved(run), _withheld(run, weights)
    quantities, label_of = [], labels(run)
    for name, values in traces.items():
        average = np.average(values, weights=weights)
        sd = np.sqrt(np.average((values - average) ** 2, weights=weights))
        measured = _measures(values[..., None], interleaved, withheld is not None)
        numbers = {measure: None if x is None else float(x[0]) for measure, x in measured.items()}
        quantities.append({"name": name, "label": label_of[name], "mean": float(average), "sd": float(sd), **numbers})
    index, values = predictions(run)
    of_pairs = _measures(values, interleaved, withheld is not None or not len(index))
    result: dict[str, Any] = {
        "chains": chains,
        "draws": draws,
        "withheld": withheld,
        "quantities": quantities,
        "predictions": {
            "pairs": len(index),
            **{measure: None if x is None else x.tolist() for measure, x in of_pairs.items()},
        },
    }
    aim = max(ESS_PER_CHAIN * chains, run.config.wanted.get("ess", 0))
    return {**result, "warnings": _warnings(result, aim), "note": BIAS_NOTE}


def agreement(run: Run) -> dict[str, Any] | None:
    """Summarise whether the chains agree, by R-hat of the monitored predictions.

    Returns
    -------
    dict or None
        ``pairs``, ``rhat_median``, ``rhat_worst``, ``above`` (fraction of the pairs above `RHAT_LIMIT`); None without
        R-hat: with one chain, no test ratings, unequal weights or too few draws.
    """
    weights = draw_weights(run)
    index, values = predictions(run)
    if len(weights) == 1 or not len(index) or _withheld(run, weights):
        return None
    values = mixing.rhat(split_subchains(values, _interleaved(run)))
    return {
        "pairs": len(index),
        "rhat_median": float(np.median(values)),
        "rhat_worst": float(values.max()),
        "above": float(np.mean(values > RHAT_LIMIT)),
    }


def slowest(run: Run) -> dict[str, dict[str, Any]]:
    """Find the shared parameters that mix most slowly.

    Returns
    -------
    dict of str to dict
        By ``shared`` (a parameter of the likelihood and the parts of the model), ``prior`` (one of the priors of rows,
        on which predictions hardly depend) and ``likelihood`` (of the test ratings, on which all act): ``label``,
        ``ess`` (the smaller of bulk and tail) and ``rhat`` (of one chain that of its halves). What a run lacks is
        missing; all is where ESS cannot be computed.
    """
    weights = draw_weights(run)
    if _withheld(run, weights):
        return {}
    label_of, interleaved = labels(run), _interleaved(run)
    slow: dict[str, dict[str, Any]] = {}
    for name, trace in scalar_traces(run).items():
        kind = "likelihood" if name == TEST_LOG_LIKELIHOOD else "prior" if name in PRIOR_SCALARS else "shared"
        chains = split_subchains(trace[..., None], interleaved)
        ess, rhat = float(min(mixing.ess_bulk(chains)[0], mixing.ess_tail(chains)[0])), float(mixing.rhat(chains)[0])
        if np.isfinite(rhat) and (kind not in slow or ess < slow[kind]["ess"]):  # else it moved once, or never
            slow[kind] = {"label": label_of[name], "ess": ess, "rhat": rhat}
    return slow


def _interleaved(run: Run) -> int:
    """Sub-chains that the sampler advances in turns."""
    return len(run.config.make_sampler().positions)


def _withheld(run: Run, weights: Float64) -> str | None:
    """Why R-hat and ESS cannot be computed from draws of these weights; None if they can."""
    if not mixing.equal_weights(weights):
        return (
            "the draws have unequal weights (the step size changes after burn-in), but R-hat and ESS need equal ones; "
            "the weights are in sample_stats of an export"
        )
    draws = weights.shape[1]
    if draws < LEAST_DRAWS * _interleaved(run):
        return f"{draws} draws per chain are too few"
    return None


def split_subchains(values: Float64, interleaved: int) -> Float64:
    """Sub-chains as chains: (chains, draws, m) values to (chains * interleaved, draws // interleaved, m)."""
    chains, draws, m = values.shape
    whole = values[:, draws % interleaved :].reshape(chains, -1, interleaved, m)
    return whole.swapaxes(1, 2).reshape(chains * interleaved, -1, m)


def _measures(values: Float64, interleaved: int, withheld: bool) -> dict[str, Float64 | None]:
    """R-hat and both ESS of (chains, draws, m) values; R-hat needs two chains, not only sub-chains of one."""
    if withheld:
        return {"rhat": None, "ess_bulk": None, "ess_tail": None}
    several = len(values) > 1
    values = split_subchains(values, interleaved)
    return {
        "rhat": mixing.rhat(values) if several else None,
        "ess_bulk": mixing.ess_bulk(values),
        "ess_tail": mixing.ess_tail(values),
    }


def measures_as_text(line: Mapping[str, Any]) -> list[str]:
    """R-hat and both ESS of a line, as text; of lists the worst value."""
    texts = []
    for name, digits, worst in (("rhat", 3, max), ("ess_bulk", 0, min), ("ess_tail", 0, min)):
        value = worst(line[name]) if isinstance(line[name], list) else line[name]
        texts.append("-" if value is None else f"{value:,.{digits}f}")
    return texts


def _warnings(diagnosis: dict[str, Any], aim: float) -> list[str]:
    """Say what is doubtful, and what to do; `aim` is the ESS at which the run ended."""
    chains, several = diagnosis["chains"], diagnosis["predictions"]
    warnings = []
    if chains == 1:
        warnings.append("one chain: R-hat needs several; sample with --chains 4")
    if diagnosis["withheld"]:
        return [*warnings, f"no R-hat and no ESS: {diagnosis['withheld']}"]
    limit = ESS_PER_CHAIN * chains
    few = [q["label"] for q in diagnosis["quantities"] if min(q["ess_bulk"], q["ess_tail"]) < limit]
    if several["ess_bulk"] is not None:
        low = np.minimum(several["ess_bulk"], several["ess_tail"]) < limit
        if low.mean() > SPARED:
            few.append(f"{low.mean():.0%} of the predictions")
    if few:
        warnings.append(
            f"ESS below {ESS_PER_CHAIN} per chain: {', '.join(few)}; their R-hat and tail quantiles are unreliable: "
            f"continue with --resume --until ess={2 * aim:g}, or --until none --iterations N"
        )
    if several["rhat"] is not None:
        share = float(np.mean(np.array(several["rhat"]) > RHAT_LIMIT))
        if share > APART:
            warnings.append(
                f"R-hat above {RHAT_LIMIT} for {share:.0%} of the predictions: the chains have not mixed; continue "
                f"with --resume --until rhat={TO_ASK_FOR}, or start again with a longer --burn-in"
            )
    return warnings


def temperatures(run: RunDirectory, transposed: bool) -> dict[str, dict[str, float]]:
    """Temperature and standard error of every field with momenta, of its hottest chain, from the newest metrics.

    Parameters
    ----------
    run : RunDirectory
    transposed : bool
        Whether the rows of W are items.

    Returns
    -------
    dict of str to dict
        ``value`` and ``error`` by a name such as ``user factors``; empty if nothing was measured.
    """
    hottest: dict[str, dict[str, float]] = {}
    newest = {line["chain"]: line for line in run.metrics()}
    for line in newest.values():
        for name in (name.removeprefix("temperature.") for name in line if name.startswith("temperature.")):
            factor, _, what = name.partition(".")
            label = f"{'item' if (factor == 'W') == transposed else 'user'} {what}"
            measured = {"value": line[f"temperature.{name}"], "error": line[f"temperature_error.{name}"]}
            hottest[label] = max(hottest.get(label, measured), measured, key=itemgetter("value"))
    return hottest


# ---------------------------------------------------------------------- the accuracy at which chains end


@dataclass(frozen=True)
class Look:
    """Result of a check of the accuracy.

    Attributes
    ----------
    until : str
        The target accuracy.
    iteration : int
        Iteration of the check.
    found : dict of str to float
        Worst value of each measure in `until`, without the worst `SPARED` of the predictions, and as ``shared_ess`` and
        ``shared_rhat`` that of the log likelihood of the test ratings; empty if unknown.
    reached : bool
        Whether the target is reached.
    limit : int
        Iteration at which chains end in any case.
    """

    until: str
    iteration: int
    found: dict[str, float]
    reached: bool
    limit: int

    def table(self) -> dict[str, Any]:
        """Entry of ``summary.json``."""
        return asdict(self)

    def __str__(self) -> str:
        """Values of the measures, as text."""
        if not self.found:
            return "unknown: too few draws, or draws of unequal weight"
        return ", ".join(f"{LABELS[name][0]} {value:{LABELS[name][1]}}" for name, value in self.found.items())


def ending(look: Mapping[str, Any]) -> str:
    """Say in one line why a run has ended, and how to continue; `look` is the `Look.table` of its summary."""
    now = Look(**look)
    if now.reached:
        better = format_accuracy(scaled(parse_accuracy(now.until), 2))
        return (
            f"reached its target ({now}, wanted {now.until}) at iteration {now.iteration:,}; "
            f"to continue: --resume --until {better}"
        )
    if now.iteration >= now.limit:
        more = f"--resume --iterations {2 * now.limit}"
        return f"ended at the limit of {now.limit:,} iterations without {now.until} ({now}); to continue: {more}"
    return f"stopped at iteration {now.iteration:,}, before {now.until} ({now}); to continue: --resume"


def accuracy(
    values: Float64, interleaved: int, measures: Sequence[str], shared: Float64 | None = None
) -> dict[str, float]:
    """Measure the worst monitored quantity, after leaving out the worst `SPARED` of them.

    Parameters
    ----------
    values : (chains, draws, m) float64
        All draws of the monitored quantities.
    interleaved : int
        Sub-chains per chain.
    measures : sequence of str
        "rhat", "ess" (the smaller one of bulk and tail ESS), or both.
    shared : (chains, draws) float64, optional
        Log likelihood of the test ratings at each draw, which is measured by itself.

    Returns
    -------
    dict of str to float
        Empty if there are too few draws.
    """
    result = _worst(values, interleaved, measures)
    if shared is not None and result:
        of_shared = _worst(shared[..., None], interleaved, measures)
        result |= {f"shared_{name}": value for name, value in of_shared.items()}
    return result


def _worst(values: Float64, interleaved: int, measures: Sequence[str]) -> dict[str, float]:
    """Measures of the worst quantity, after leaving out the worst `SPARED` of them."""
    chains = split_subchains(values, interleaved)
    compared = mixing.halves(chains) if len(values) == 1 else chains
    result: dict[str, float] = {}
    if compared.shape[1] < LEAST_DRAWS:
        return result
    if "rhat" in measures:
        result["rhat"] = _spared(mixing.rhat(compared))
    if "ess" in measures:
        result["ess"] = -_spared(-np.minimum(mixing.ess_bulk(chains), mixing.ess_tail(chains)))
    return result


def _spared(values: Float64) -> float:
    """Largest value, after leaving out the largest `SPARED` of them."""
    return float(np.nanquantile(values, 1 - SPARED, method="inverted_cdf"))


def scaled(wanted: Mapping[str, float], times: float) -> dict[str, float]:
    """Limits that are so many times as accurate."""
    return {name: times * limit if name == "ess" else 1 + (limit - 1) / times for name, limit in wanted.items()}


def limits(wanted: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    """Limit of each measure that was found."""
    of_shared = {f"shared_{name}": limit for name, limit in scaled(wanted, 1 / SHARED_FRACTION).items()}
    return {name: limit for name, limit in {**wanted, **of_shared}.items() if name in found}


def reached(wanted: Mapping[str, float], found: Mapping[str, float]) -> bool:
    """Whether predictions, and shared parameters, are as accurate as wanted; or predictions `ENOUGH_ALONE` times so."""

    def met(wanted: Mapping[str, float]) -> bool:
        return all(
            found[name] <= limit if name.endswith("rhat") else found[name] >= limit for name, limit in wanted.items()
        )

    return bool(found) and met(wanted) and (met(limits(wanted, found)) or met(scaled(wanted, ENOUGH_ALONE)))
