"""Convergence of chains: R-hat and effective sample sizes (`dsgmcmc.diagnostics.mixing`).

Both are computed for identified quantities (`dsgmcmc.posterior.traces`), never for raw factors.

HAMCMC interleaves several sub-chains in one chain; here they count as separate chains. The joint
trace of three or more sub-chains has a comb-shaped autocorrelation, which estimators of the ESS
mistake for almost no autocorrelation.

R-hat and ESS assume equally weighted draws; with unequal weights they are not computed. Neither
detects the bias of a stochastic-gradient sampler: its chains may agree on a wrong distribution
[Nemeth 2021, section 4].
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from operator import itemgetter
from typing import Any

import numpy as np

from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.config.units import ESS_PER_CHAIN, LEAST_DRAWS
from dsgmcmc.diagnostics import mixing
from dsgmcmc.orientation import Orientation
from dsgmcmc.posterior import traces
from dsgmcmc.posterior.run import Run
from dsgmcmc.settings import named
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.types import Factor, Float64

#: If two chains agree, the square of R-hat is about 1 + x / E, with x ~ chi^2_3 / 3 and E the ESS
#: of half a chain. At the default end of a run (E = 50), R-hat is 1.01 on average, and above 1.05
#: in one case in a thousand.
RHAT_LIMIT = 1.05
#: Target R-hat that a warning recommends.
RECOMMENDED_RHAT = 1.01
#: Fraction of the predictions that may miss a target. With few ratings, up to one prediction in
#: ten shifts its mean only once in thousands of sweeps: if 95 % had to reach the target, the end of
#: a run would be a matter of chance (docs/evidence/dropped.md).
SHARE_LEFT_OUT = 0.1
#: Chains do not agree if more than this fraction of predictions have R-hat > `RHAT_LIMIT`.
MAX_SHARE_APART = 0.05
#: Shared parameters are not to be interpreted below this ESS, or above this R-hat of the halves of
#: the chains, whose means then differ by two thirds of an sd; independent draws exceed it in one
#: case of a thousand at ESS 100.
LEAST_SHARED_ESS = 20
HALVES_LIMIT = 1.1
#: Nor if their Monte Carlo error is above this share of their mean. Of tau it is twice the share of
#: the noise's standard deviation.
LARGE_ERROR = 0.05
BIAS_NOTE = (
    "R-hat tells whether the chains agree, and ESS how many independent draws they are worth."
    " Neither detects the bias of a stochastic-gradient sampler, which all chains share [Nemeth"
    " 2021, section 4]; calibration on test ratings and a run with a smaller step detect it."
)


def diagnose(run: Run) -> dict[str, Any]:
    """Diagnose the chains of a run.

    Returns
    -------
    dict
        ``chains``, ``draws`` (per chain), ``withheld`` (why R-hat and ESS are missing, or None),
        ``quantities`` (a list of dicts ``name, label, read, mean, sd, rhat, halves, ess_bulk,
        ess_tail``, where ``read`` says whether people read it, and ``halves`` is R-hat of the
        halves of all chains), ``predictions`` (the number of
        ``pairs``, and lists ``rhat``, ``halves``, ``ess_bulk`` and ``ess_tail`` with one value per
        pair), ``warnings``, ``note``. Unknown values are None.
    """
    weights = traces.draw_weights(run)
    chains, draws = weights.shape
    interleaved = run.config.interleaved
    withheld = _why_withheld(weights, interleaved)
    scalars = traces.scalar_traces(run)
    label_of = traces.labels(run, scalars)
    quantities = []
    for name, values in scalars.items():
        mean = np.average(values, weights=weights)
        sd = np.sqrt(np.average((values - mean) ** 2, weights=weights))
        entry = {"name": name, "label": label_of[name], "mean": float(mean), "sd": float(sd)}
        entry["read"] = traces.is_read(run, name)
        measured = _measures(values[..., None], interleaved, withheld is not None)
        for measure, found in measured.items():
            entry[measure] = None if found is None else found[0]
        quantities.append(entry)
    index, values = traces.predictions(run)
    unknown = withheld is not None or not len(index)
    result: dict[str, Any] = {
        "chains": chains,
        "draws": draws,
        "withheld": withheld,
        "quantities": quantities,
        "predictions": {"pairs": len(index), **_measures(values, interleaved, unknown)},
    }
    target_ess = max(ESS_PER_CHAIN * chains, run.config.accuracy_limits.get("ess", 0))
    return {**result, "warnings": _warnings(result, target_ess), "note": BIAS_NOTE}


def agreement(diagnosis: Mapping[str, Any]) -> dict[str, Any] | None:
    """Summarise R-hat of the monitored predictions, which shows whether the chains agree.

    Returns
    -------
    dict or None
        ``pairs``, ``rhat_median``, ``rhat_worst``, ``above`` (fraction of the pairs above
        `RHAT_LIMIT`); None without R-hat, that is with one chain, no test ratings, unequal weights
        or too few draws.
    """
    values = diagnosis["predictions"]["rhat"]
    if values is None:
        return None
    return {
        "pairs": len(values),
        "rhat_median": float(np.median(values)),
        "rhat_worst": max(values),
        "above": float(np.mean(np.array(values) > RHAT_LIMIT)),
    }


def slowest(diagnosis: Mapping[str, Any], config: ResolvedChain) -> dict[str, dict[str, Any]]:
    """Find the slowest-mixing shared parameter that people read (`traces.is_read`).

    Returns
    -------
    dict of str to dict
        Under the key ``shared``: its ``label``, ``ess`` (the smaller of bulk and tail ESS),
        ``rhat`` (None for one chain), ``mean`` and its Monte Carlo ``error``; ``uncertain``, the
        labels of all parameters that are not to be interpreted (`LEAST_SHARED_ESS`,
        `HALVES_LIMIT`, `LARGE_ERROR`); and ``iterations``, the length of chains that would reach
        `LEAST_SHARED_ESS`. Empty if ESS cannot be computed, or nobody reads a parameter.
    """
    measured = _by_ess(diagnosis)
    if not measured:
        return {}
    slow = measured[0]
    uncertain = [
        quantity["label"]
        for quantity in measured
        if (quantity["ess"] < LEAST_SHARED_ESS or quantity["halves"] > HALVES_LIMIT)
        and _has_large_error(quantity)
    ]
    shared = {name: slow[name] for name in ("label", "ess", "rhat", "mean")}
    shared["error"] = slow["sd"] / slow["ess"] ** 0.5
    shared["uncertain"] = uncertain
    shared["iterations"] = _sufficient_iterations(slow["ess"], diagnosis, config)
    return {"shared": shared}


def unmixed(diagnosis: Mapping[str, Any], config: ResolvedChain) -> dict[str, Any]:
    """Find parameters that people read and in which the draws have not mixed.

    Their ESS is below `LEAST_SHARED_ESS`, and R-hat of the halves of all chains above
    `HALVES_LIMIT`: either alone happens by chance in short runs, or where predictions hardly depend
    on a parameter. Their error is above `LARGE_ERROR`.

    Returns
    -------
    dict
        ``quantities``, each with its ``label``, ``rhat`` and ``ess``, by increasing ESS; and
        ``iterations``, the length of chains that would reach `LEAST_SHARED_ESS`. Empty if there are
        none.
    """
    found = [
        {"label": quantity["label"], "rhat": quantity["halves"], "ess": quantity["ess"]}
        for quantity in _by_ess(diagnosis)
        if quantity["ess"] < LEAST_SHARED_ESS
        and quantity["halves"] > HALVES_LIMIT
        and _has_large_error(quantity)
    ]
    if not found:
        return {}
    iterations = _sufficient_iterations(found[0]["ess"], diagnosis, config)
    return {"quantities": found, "iterations": iterations}


def _by_ess(diagnosis: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the quantities that people read, by the smaller of bulk and tail ESS, ``ess``.

    There are none if ESS cannot be computed.
    """
    if diagnosis["withheld"]:
        return []
    measured = [
        {**quantity, "ess": min(quantity["ess_bulk"], quantity["ess_tail"])}
        for quantity in diagnosis["quantities"]
        if quantity["read"]
    ]
    return sorted(measured, key=itemgetter("ess"))


def _has_large_error(quantity: Mapping[str, Any]) -> bool:
    """Whether the Monte Carlo error of a quantity is large beside its mean."""
    error = quantity["sd"] / quantity["ess"] ** 0.5
    return bool(error > LARGE_ERROR * abs(quantity["mean"]))


def _sufficient_iterations(ess: float, diagnosis: Mapping[str, Any], config: ResolvedChain) -> int:
    """Return the length of chains with `LEAST_SHARED_ESS`, at least twice as many draws as now.

    It is rounded up to two digits: chains that have made more cannot end there.
    """
    times = max(2.0, LEAST_SHARED_ESS / ess)
    length: int = ceil(config.burn_in + times * diagnosis["draws"] * config.thin)
    unit: int = 10 ** max(0, len(str(length)) - 2)
    return ceil(length / unit) * unit


def _why_withheld(weights: Float64, interleaved: int) -> str | None:
    """Say why R-hat and ESS cannot be computed from draws with these weights; None if they can."""
    if not mixing.equal_weights(weights):
        return "the draws have unequal weights, because the step size changes after burn-in"
    draws = weights.shape[1]
    if draws < LEAST_DRAWS * interleaved:
        return f"{draws} draws per chain are too few"
    return None


def split_interleaved(values: Float64, interleaved: int) -> Float64:
    """Turn each sub-chain of draws that belong to several states in turns into a chain.

    Values (chains, draws, m) become (chains * interleaved, draws // interleaved, m).
    """
    chains, draws, m = values.shape
    complete = values[:, draws % interleaved :].reshape(chains, -1, interleaved, m)
    return complete.swapaxes(1, 2).reshape(chains * interleaved, -1, m)


def _measures(values: Float64, interleaved: int, withheld: bool) -> dict[str, list[float] | None]:
    """Return R-hat, that of halves, bulk ESS and tail ESS of (chains, draws, m) values.

    R-hat is None for a single chain, and so is all if it is `withheld`.
    """
    if withheld:
        return {"rhat": None, "halves": None, "ess_bulk": None, "ess_tail": None}
    split = split_interleaved(values, interleaved)
    halves = mixing.rhat(split).tolist()
    rhat = None  # for a single chain, even if it is split
    if len(values) > 1:
        rhat = halves
    return {
        "rhat": rhat,
        "halves": halves,
        "ess_bulk": mixing.ess_bulk(split).tolist(),
        "ess_tail": mixing.ess_tail(split).tolist(),
    }


def _warnings(diagnosis: dict[str, Any], target_ess: float) -> list[str]:
    """Describe reasons to doubt the draws, and remedies.

    `target_ess` is the larger of the default ESS and the target of the run.
    """
    warnings = []
    if diagnosis["chains"] == 1:
        warnings.append(f"one chain: R-hat needs several; sample with {named('chains')} 4")
    if diagnosis["withheld"]:
        return [*warnings, f"no R-hat and no ESS: {diagnosis['withheld']}"]
    few = _with_low_ess(diagnosis)
    if few:
        warnings.append(
            f"ESS below {ESS_PER_CHAIN} per chain: {', '.join(few)}; their R-hat and tail quantiles"
            f" are unreliable: continue with {named('resume')} {named('until')}"
            f" ess={2 * target_ess:g}, or {named('until')} none {named('iterations')} N"
        )
    rhat = diagnosis["predictions"]["rhat"]
    if rhat is not None:
        share = float(np.mean(np.array(rhat) > RHAT_LIMIT))
        if share > MAX_SHARE_APART:
            warnings.append(
                f"R-hat above {RHAT_LIMIT} for {share:.0%} of the predictions: the chains have not"
                f" mixed; continue with {named('resume')} {named('until')}"
                f" rhat={RECOMMENDED_RHAT}, or start again with a longer {named('burn_in')}"
            )
    return warnings


def _with_low_ess(diagnosis: dict[str, Any]) -> list[str]:
    """Return labels of quantities whose ESS is too low, and the share of such predictions."""
    limit = ESS_PER_CHAIN * diagnosis["chains"]
    labels = [
        quantity["label"]
        for quantity in diagnosis["quantities"]
        if min(quantity["ess_bulk"], quantity["ess_tail"]) < limit
    ]
    predictions = diagnosis["predictions"]
    if predictions["ess_bulk"] is not None:
        low = np.fmin(predictions["ess_bulk"], predictions["ess_tail"]) < limit
        if low.mean() > SHARE_LEFT_OUT:
            labels.append(f"{low.mean():.0%} of the predictions")
    return labels


def temperatures(run: RunDirectory, orientation: Orientation) -> dict[str, dict[str, float]]:
    """Return the temperatures of fields with momenta, and their errors, from the newest metrics.

    If chains differ, each field gets the values of the chain in which its temperature is highest.

    Parameters
    ----------
    run : RunDirectory
    orientation : Orientation
        Which factor's rows stand for users.

    Returns
    -------
    dict of str to dict
        ``value`` and its standard ``error``, by names such as ``user factors``; empty if no
        temperature was measured.
    """
    highest: dict[str, dict[str, float]] = {}
    newest = {line["chain"]: line for line in run.metrics()}
    for line in newest.values():
        for column, value in line.items():
            if not column.startswith("temperature."):
                continue
            name = column.removeprefix("temperature.")
            factor, _, field = name.partition(".")
            label = f"{orientation.entity_of(Factor[factor])} {field}"
            measured = {"value": value, "error": line[f"temperature_error.{name}"]}
            highest[label] = max(highest.get(label, measured), measured, key=itemgetter("value"))
    return highest
