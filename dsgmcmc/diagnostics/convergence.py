r"""Convergence of chains: R-hat and effective sample sizes (`dsgmcmc.diagnostics.mixing`).

Both are computed for identified quantities (`dsgmcmc.posterior.traces`), never for raw factors.

HAMCMC interleaves several sub-chains in one chain; here they count as separate chains. The joint
trace of three or more sub-chains has a comb-shaped autocorrelation, which estimators of the ESS
mistake for almost no autocorrelation.

R-hat and ESS assume equally weighted draws; with unequal weights they are not computed. Neither
detects the bias of a stochastic-gradient sampler: its chains may agree on a wrong distribution
[Nemeth 2021, section 4].

**The target accuracy.** Shared parameters, such as thresholds and precisions, mix more slowly than
predictions, and many of them move along directions that leave all predictions unchanged: thresholds
together with the means of the factors, a precision of biases together with these biases. Any effect
that the shared parameters do have on predictions shows in the log likelihood of the test ratings at
each draw. This log likelihood is therefore monitored in place of the shared parameters. Its
required ESS is smaller than the predictions' required ESS by the factor `LIKELIHOOD_ALLOWANCE`: the
smaller ESS still distinguishes a converged chain from a drifting one. The log likelihood is ignored
once the predictions are `ACCURACY_ALONE` times as accurate as the target; docs/evidence/dropped.md
gives the reason for waiting.

In this check, unlike in `diagnose`, a single chain is compared with itself: its halves count as
chains, and R-hat splits each half again. 9 of 10 monitored quantities must reach the accuracy.

The accuracy is checked when all chains have completed burn-in and 10 n sweeps, where n runs through
1, ..., 8, 10, 12, 14, 16, 20, ..., the numbers with at most three significant binary digits. So the
end depends on the draws alone, not on the clock; all checks together cost about as much as six
checks at the end; and chains run at most a quarter longer than necessary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.config.units import ESS_PER_CHAIN, LEAST_DRAWS, format_accuracy, parse_accuracy
from dsgmcmc.diagnostics import mixing
from dsgmcmc.posterior import traces
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.targets.base import Monitored
from dsgmcmc.types import Float64

#: If two chains agree, the square of R-hat is about 1 + x / E, with x ~ chi^2_3 / 3 and E the ESS
#: of half a chain. At the default end of a run (E = 50), R-hat is 1.01 on average, and above 1.05
#: in one case in a thousand.
RHAT_LIMIT = 1.05
RECOMMENDED_RHAT = 1.01  # target R-hat that a warning recommends
#: Fraction of the predictions that may miss the target. With few ratings, up to one prediction in
#: ten shifts its mean only once in thousands of sweeps: if 95 % had to reach the target, the end of
#: a run would be a matter of chance (docs/evidence/dropped.md).
SHARE_LEFT_OUT = 0.1
MAX_SHARE_APART = 0.05  # if more than this fraction of predictions have R-hat > `RHAT_LIMIT`, the chains do not agree
#: Checks ("looks") are due LOOK_SWEEPS * n sweeps after burn-in; n has at most LOOK_DIGITS
#: significant binary digits.
LOOK_SWEEPS, LOOK_DIGITS = 10, 3
#: For the log likelihood of the test ratings, the ESS may be smaller, and R-hat - 1 larger, by this
#: factor.
LIKELIHOOD_ALLOWANCE = 10
#: If the predictions are so many times as accurate as the target, the log likelihood is ignored.
ACCURACY_ALONE = 1.5
#: Shared parameters are not to be interpreted below this ESS, or above this R-hat of the halves of
#: the chains, whose means then differ by two thirds of an sd; independent draws exceed it in one
#: case of a thousand at ESS 100.
LEAST_SHARED_ESS, HALVES_LIMIT = 20, 1.1
LABELS = {
    "rhat": ("R-hat of predictions", ".3f"),
    "ess": ("ESS", ".0f"),
    "shared_rhat": ("R-hat of the test log likelihood", ".3f"),
    "shared_ess": ("ESS of the test log likelihood", ".0f"),
}
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
        ``quantities`` (a list of dicts ``name, label, mean, sd, rhat, halves, ess_bulk, ess_tail``,
        where ``halves`` is R-hat of the halves of all chains), ``predictions`` (the number of
        ``pairs``, and lists ``rhat``, ``halves``, ``ess_bulk`` and ``ess_tail`` with one value per
        pair), ``warnings``, ``note``. Unknown values are None.
    """
    weights, scalars = traces.draw_weights(run), traces.scalar_traces(run)
    chains, draws = weights.shape
    label_of = traces.labels(run, scalars)
    interleaved = len(run.config.make_sampler().positions)
    withheld = _withheld(weights, interleaved)
    quantities = []
    for name, values in scalars.items():
        mean = np.average(values, weights=weights)
        sd = np.sqrt(np.average((values - mean) ** 2, weights=weights))
        measured = _measures(values[..., None], interleaved, withheld is not None)
        entries = {measure: None if x is None else x[0] for measure, x in measured.items()}
        quantities.append(
            {"name": name, "label": label_of[name], "mean": float(mean), "sd": float(sd), **entries}
        )
    index, values = traces.predictions(run)
    result: dict[str, Any] = {
        "chains": chains,
        "draws": draws,
        "withheld": withheld,
        "quantities": quantities,
        "predictions": {
            "pairs": len(index),
            **_measures(values, interleaved, withheld is not None or not len(index)),
        },
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
    """Find the slowest-mixing shared parameter, leaving out the parameters of the priors of rows.

    Returns
    -------
    dict of str to dict
        Under the key ``shared``: its ``label``, ``ess`` (the smaller of bulk and tail ESS),
        ``rhat`` (None for one chain), ``mean`` and its Monte Carlo ``error``; ``uncertain``, the
        labels of all parameters that are not to be interpreted (`LEAST_SHARED_ESS`,
        `HALVES_LIMIT`); and ``iterations``, the length of chains that would reach
        `LEAST_SHARED_ESS`. Empty if ESS cannot be computed. Parameters of the priors of rows are
        left out because predictions hardly depend on them.
    """
    measured = [
        {**line, "ess": min(line["ess_bulk"], line["ess_tail"])}
        for line in diagnosis["quantities"]
        if not diagnosis["withheld"] and line["name"] not in traces.LABELS
    ]
    if not measured:
        return {}
    measured.sort(key=itemgetter("ess"))
    slow, times = measured[0], max(2.0, LEAST_SHARED_ESS / measured[0]["ess"])
    shared = {name: slow[name] for name in ("label", "ess", "rhat", "mean")}
    error = slow["sd"] / slow["ess"] ** 0.5
    doubtful = [
        q["label"] for q in measured if q["ess"] < LEAST_SHARED_ESS or q["halves"] > HALVES_LIMIT
    ]
    length = float(f"{config.burn_in + times * diagnosis['draws'] * config.thin:.2g}")
    return {"shared": {**shared, "error": error, "uncertain": doubtful, "iterations": int(length)}}


def _withheld(weights: Float64, interleaved: int) -> str | None:
    """Say why R-hat and ESS cannot be computed from draws with the given weights; None if they can
    be computed.
    """
    if not mixing.equal_weights(weights):
        return "the draws have unequal weights, because the step size changes after burn-in"
    draws = weights.shape[1]
    if draws < LEAST_DRAWS * interleaved:
        return f"{draws} draws per chain are too few"
    return None


def split_subchains(values: Float64, interleaved: int) -> Float64:
    """Turn sub-chains into chains: (chains, draws, m) to (chains * interleaved, draws //
    interleaved, m).
    """
    chains, draws, m = values.shape
    whole = values[:, draws % interleaved :].reshape(chains, -1, interleaved, m)
    return whole.swapaxes(1, 2).reshape(chains * interleaved, -1, m)


def _measures(values: Float64, interleaved: int, withheld: bool) -> dict[str, list[float] | None]:
    """Return R-hat, bulk ESS and tail ESS of (chains, draws, m) values; R-hat is None for a single
    chain.
    """
    if withheld:
        return {"rhat": None, "halves": None, "ess_bulk": None, "ess_tail": None}
    subchains = split_subchains(values, interleaved)
    halves = mixing.rhat(subchains).tolist()
    return {
        "rhat": halves if len(values) > 1 else None,  # None even with sub-chains
        "halves": halves,
        "ess_bulk": mixing.ess_bulk(subchains).tolist(),
        "ess_tail": mixing.ess_tail(subchains).tolist(),
    }


def _warnings(diagnosis: dict[str, Any], target_ess: float) -> list[str]:
    """Describe reasons to doubt the draws, and remedies; `target_ess` is the larger of default and
    target ESS.
    """
    chains, monitored = diagnosis["chains"], diagnosis["predictions"]
    warnings = []
    if chains == 1:
        warnings.append("one chain: R-hat needs several; sample with --chains 4")
    if diagnosis["withheld"]:
        return [*warnings, f"no R-hat and no ESS: {diagnosis['withheld']}"]
    limit = ESS_PER_CHAIN * chains
    few = [q["label"] for q in diagnosis["quantities"] if min(q["ess_bulk"], q["ess_tail"]) < limit]
    if monitored["ess_bulk"] is not None:
        low = np.minimum(monitored["ess_bulk"], monitored["ess_tail"]) < limit
        if low.mean() > SHARE_LEFT_OUT:
            few.append(f"{low.mean():.0%} of the predictions")
    if few:
        warnings.append(
            f"ESS below {ESS_PER_CHAIN} per chain: {', '.join(few)}; their R-hat and tail quantiles"
            f" are unreliable: continue with --resume --until ess={2 * target_ess:g}, or --until"
            " none --iterations N"
        )
    if monitored["rhat"] is not None:
        share = float(np.mean(np.array(monitored["rhat"]) > RHAT_LIMIT))
        if share > MAX_SHARE_APART:
            warnings.append(
                f"R-hat above {RHAT_LIMIT} for {share:.0%} of the predictions: the chains have not"
                f" mixed; continue with --resume --until rhat={RECOMMENDED_RHAT}, or start again"
                " with a longer --burn-in"
            )
    return warnings


def temperatures(run: RunDirectory, transposed: bool) -> dict[str, dict[str, float]]:
    """Return the temperature of each field with momenta, and its standard error, from the newest
    metrics.

    If chains differ, each field gets the values of the chain in which its temperature is highest.

    Parameters
    ----------
    run : RunDirectory
    transposed : bool
        Whether the rows of W are items.

    Returns
    -------
    dict of str to dict
        ``value`` and ``error``, by names such as ``user factors``; empty if no temperature was
        measured.
    """
    highest: dict[str, dict[str, float]] = {}
    newest = {line["chain"]: line for line in run.metrics()}
    for line in newest.values():
        for name in (
            name.removeprefix("temperature.") for name in line if name.startswith("temperature.")
        ):
            factor, _, field = name.partition(".")
            label = f"{'item' if (factor == 'W') == transposed else 'user'} {field}"
            measured = {
                "value": line[f"temperature.{name}"],
                "error": line[f"temperature_error.{name}"],
            }
            highest[label] = max(highest.get(label, measured), measured, key=itemgetter("value"))
    return highest


# --------------------------------------------------------------------- the target accuracy of a run


class Look(NamedTuple):
    """Result of a check of the accuracy.

    Attributes
    ----------
    until : str
        The target accuracy.
    iteration : int
        Iteration of the check.
    found : dict of str to float
        Value of each measure in `until` for the worst prediction, after leaving out the worst
        `SHARE_LEFT_OUT` of the predictions; values for the log likelihood of the test ratings are
        ``shared_ess`` and ``shared_rhat``. Empty if unknown.
    reached : bool
        Whether the target is reached.
    limit : int
        Iteration at which chains end even if the target is not reached.
    """

    until: str
    iteration: int
    found: dict[str, float]
    reached: bool
    limit: int

    def __str__(self) -> str:
        """Say how accurate the predictions are, and whether the log likelihood of the test ratings
        still drifts.
        """
        if not self.found:
            return (
                "the accuracy of predictions is unknown: too few draws, or draws of unequal weight"
            )
        words, wanted = [], limits(parse_accuracy(self.until), self.found)
        for name, value in self.found.items():
            if name == "ess":
                words.append(
                    f"predictions are as accurate as {value:,.0f} independent draws,"
                    f" {wanted[name]:g} were wanted"
                )
            elif name == "rhat" or not (self.reached or _meets(self.found, {name: wanted[name]})):
                words.append(
                    f"{LABELS[name][0]} is {value:{LABELS[name][1]}}, {wanted[name]:g} was wanted"
                )
        return "; ".join(words)

    def against(self, targets: Mapping[str, float]) -> str:
        """Return the values of the measures as text, each with its limit."""
        limit = limits(targets, self.found)
        shown = [
            f"{LABELS[name][0]} {value:{LABELS[name][1]}}/{limit[name]:g}"
            for name, value in self.found.items()
        ]
        return ", ".join(shown)


def next_look(iteration: int, burn_in: int, sweep: int) -> int:
    """Return the iteration of the first check that is not before `iteration`.

    Parameters
    ----------
    iteration, burn_in : int
    sweep : int
        Number of iterations in a sweep.
    """
    number = max(1, -(-(iteration - burn_in) // (LOOK_SWEEPS * sweep)))
    spacing = 1 << max(0, number.bit_length() - LOOK_DIGITS)
    return burn_in + -(-number // spacing) * spacing * LOOK_SWEEPS * sweep


def look_at(
    config: ResolvedChain,
    gathered: Sequence[
        tuple[Mapping[tuple[int, int], Monitored], Mapping[int, tuple[int, Float64]]]
    ],
) -> Look:
    """Measure the accuracy of all chains.

    Parameters
    ----------
    config : ResolvedChain
        Settings of the run.
    gathered : sequence of (dict, dict)
        From every process two dicts: the monitored values, by chain and block; and by chain the
        pair of its iteration and the weights of its draws, (draws,) float64.
    """
    followed = {key: values for blocks, _ in gathered for key, values in blocks.items()}
    progress_of = {chain: progress for _, chains in gathered for chain, progress in chains.items()}
    chains, scores = [], []
    for number in sorted(progress_of):
        blocks = [followed[key] for key in sorted(followed) if key[0] == number]
        chains.append(np.concatenate([block.values for block in blocks], axis=1))
        scores.append(
            np.sum([block.score for block in blocks], axis=0)
        )  # in block order, for reproducible rounding
    weights = traces.last_draws([weight for _, weight in progress_of.values()])
    measured: dict[str, float] = {}
    if mixing.equal_weights(weights):
        values = traces.last_draws(chains).astype(np.float64)
        log_likelihood = traces.last_draws(scores) if scores[0].size else None
        measured = accuracy(
            values,
            len(config.make_sampler().positions),
            list(config.accuracy_limits),
            log_likelihood,
        )
    return Look(
        until=str(config.until),
        iteration=min(iteration for iteration, _ in progress_of.values()),
        found=measured,
        reached=reached(config.accuracy_limits, measured),
        limit=config.iterations,
    )


def describe_ending(look: Mapping[str, Any]) -> str:
    """Say in one line why a run ended, and how to continue; `look` is the `Look` in its summary."""
    last = Look(**look)
    if last.reached:
        better = format_accuracy(scaled(parse_accuracy(last.until), 2))
        return (
            f"{last}: reached at iteration {last.iteration:,}; to continue: --resume --until"
            f" {better}"
        )
    if last.iteration >= last.limit:
        more = f"--resume --iterations {2 * last.limit}"
        return f"{last}: ended at the limit of {last.limit:,} iterations; to continue: {more}"
    return f"{last}: stopped at iteration {last.iteration:,}; to continue: --resume"


def accuracy(
    values: Float64,
    interleaved: int,
    measures: Sequence[str],
    log_likelihood: Float64 | None = None,
) -> dict[str, float]:
    """Measure the worst monitored quantity, after leaving out the worst `SHARE_LEFT_OUT` of the
    quantities.

    Parameters
    ----------
    values : (chains, draws, m) float64
        All draws of the monitored quantities.
    interleaved : int
        Sub-chains per chain.
    measures : sequence of str
        "rhat", "ess" (the smaller of bulk and tail ESS), or both.
    log_likelihood : (chains, draws) float64, optional
        Log likelihood of the test ratings at each draw, which is measured separately.

    Returns
    -------
    dict of str to float
        Empty if there are too few draws.
    """
    result = _worst(values, interleaved, measures)
    if log_likelihood is not None and result:
        for name, value in _worst(log_likelihood[..., None], interleaved, measures).items():
            result[f"shared_{name}"] = value
    return result


def _worst(values: Float64, interleaved: int, measures: Sequence[str]) -> dict[str, float]:
    """Return the measures of the worst quantity, after leaving out the worst `SHARE_LEFT_OUT` of
    the quantities.
    """
    chains = split_subchains(values, interleaved)
    compared = mixing.halves(chains) if len(values) == 1 else chains
    if compared.shape[1] < LEAST_DRAWS:
        return {}
    result = {}
    if "rhat" in measures:
        result["rhat"] = _largest(mixing.rhat(compared))
    if "ess" in measures:
        result["ess"] = -_largest(-np.minimum(mixing.ess_bulk(chains), mixing.ess_tail(chains)))
    return result


def _largest(values: Float64) -> float:
    """Return the largest value, after leaving out the largest `SHARE_LEFT_OUT` of the values."""
    return float(np.nanquantile(values, 1 - SHARE_LEFT_OUT, method="inverted_cdf"))


def scaled(targets: Mapping[str, float], times: float) -> dict[str, float]:
    """Return limits of an accuracy `times` times as high: ESS is multiplied, and R-hat - 1 divided,
    by `times`.
    """
    return {
        name: times * limit if name == "ess" else 1 + (limit - 1) / times
        for name, limit in targets.items()
    }


def limits(targets: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Return the limits of the measures in `measured`."""
    shared = {
        f"shared_{name}": limit for name, limit in scaled(targets, 1 / LIKELIHOOD_ALLOWANCE).items()
    }
    return {name: limit for name, limit in {**targets, **shared}.items() if name in measured}


def reached(targets: Mapping[str, float], measured: Mapping[str, float]) -> bool:
    """Whether predictions and log likelihood reach the targets, or predictions a stricter target
    (`ACCURACY_ALONE`).
    """
    if not measured or not _meets(measured, targets):
        return False
    return _meets(measured, limits(targets, measured)) or _meets(
        measured, scaled(targets, ACCURACY_ALONE)
    )


def _meets(measured: Mapping[str, float], bounds: Mapping[str, float]) -> bool:
    """Whether measures are within their bounds."""
    return all(
        measured[name] <= limit if name.endswith("rhat") else measured[name] >= limit
        for name, limit in bounds.items()
    )
