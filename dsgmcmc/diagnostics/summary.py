"""The results and times of a job: ``summary.json``, and a short text about the run.

The text has the result, warnings, the speed, and how the run ended. ``dsgmcmc sample`` prints it at
its end; ``dsgmcmc info`` and the report begin with it. ``summary.json`` and ``comparison.json`` are
JSON with a checksum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from math import inf, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from dsgmcmc.diagnostics.accuracy import describe_ending
from dsgmcmc.diagnostics.convergence import MAX_SHARE_APART
from dsgmcmc.errors import InputError, refusing
from dsgmcmc.ratings.description import describe_untrained
from dsgmcmc.settings import named
from dsgmcmc.storage.files import read_plain, write_file
from dsgmcmc.storage.store import seal, unseal
from dsgmcmc.terminal import plain

MAX_BYTES = 1 << 22
#: Warn if the coverage of intervals is further from their level, beyond chance; in the middle of a
#: distribution, rounding and heavy tails of ratings move it more.
COVERAGE_OFF = {"0.9": 0.02, "0.95": 0.02, "0.8": 0.05, "0.5": 0.1}

#: Fewest groups that were held out by which intervals are judged.
LEAST_GROUPS = 5
#: Probability below the error by group that is chance: that of three standard deviations.
BEYOND_CHANCE = 0.99865
#: Standard deviations that are chance if a group counts as one rating.
SDS_OF_GROUPS = 2.5

UNSEEN = 1e-4  # differences of log scores below this are not reported

#: With a smaller effective sample size of predictions, no score of a run is reliable.
LEAST_ESS = 20

#: A temperature significantly above this value gives a warning.
WARNED_TEMPERATURE = 1.05

#: Texts for the log scores, by their names in a summary.
LOG_SCORES = {
    "log_probability": "log probability of a recorded rating",
    "log_predictive_density": "log predictive density of a rating",
}

NAMED = 3  # number of shared parameters that the text names

Summary = Mapping[str, Any]


def save_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write a summary, with null for numbers that are not finite, and its checksum.

    Raises OSError if that fails.
    """
    finite = json.loads(json.dumps(summary), parse_constant=lambda name: None)
    write_file(path, seal(json.dumps(finite, indent=1)))


def read_summary(path: Path) -> dict[str, Any]:
    """Read a summary.

    Raises InputError if it cannot be read or is damaged, and FileNotFoundError if there is none.
    """
    try:
        summary: dict[str, Any] = json.loads(unseal(read_plain(path, MAX_BYTES).decode(), path))
    except (FileNotFoundError, InputError):
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return summary


def as_written(path: Path) -> AbstractContextManager[None]:
    """Context in which errors caused by the contents of a summary become InputError."""
    problem = f"{path} is not the summary of a run (move it away, or sample again)"
    return refusing(problem, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


# ---------------------------------------------------------------------- the text about a run


class RunText(NamedTuple):
    """The text about a run, in three groups of lines.

    Attributes
    ----------
    result : list of str
        Scores, the agreement of the chains, and the shared parameters that are not to be
        interpreted.
    warnings : list of str
        Warnings, most of them with a remedy.
    end : list of str
        Speed, reason for the end, and how to continue.
    reservations : sequence of str
        Warnings that concern all scores, or the choice of the model: they follow the first line.
    """

    result: list[str]
    warnings: list[str]
    end: list[str]
    reservations: Sequence[str] = ()

    def lines(self) -> list[str]:
        """All lines, as they are printed."""
        first, *others = self.result
        reservations = [f"warning: {reservation}" for reservation in self.reservations]
        warnings = [f"warning: {warning}" for warning in self.warnings]
        return [first, *reservations, *others, *warnings, *self.end]

    def all_warnings(self) -> list[str]:
        """All warnings, those that concern everything first."""
        return [*self.reservations, *self.warnings]


def describe_run(summary: Summary, cautions: Sequence[str] = ()) -> RunText:
    """Describe a run by its summary; `cautions` are the warnings given at its start."""
    result = [*_scores(summary), *_mixing(summary)]
    return RunText(
        result=result,
        warnings=[*cautions, *doubts(summary)],
        end=[*_speed(summary), ending(summary)],
        reservations=_reservations(summary),
    )


def _scores(summary: Summary) -> list[str]:
    """Return lines with scores, coverage and agreement of the chains; for clicks, with rankings."""
    if summary.get("rankings"):
        return _ranking_lines(summary["rankings"])
    if summary.get("rmse_mean") is None:
        if not summary.get("bounded"):
            return [_why_unscored(summary)]
        return [_why_unscored(summary), *_log_score(summary)]
    by_group = summary.get("by_group")
    coverage = ", ".join(
        f"{float(level):.0%}: {covered(share, level, by_group)}"
        for level, share in summary["coverage"].items()
    )
    errors = _errors(summary)
    lines = [*_log_score(summary), *_two_levels(summary)]
    if summary.get("tau") is None and lines:
        lines.append(errors)  # levels and counts are not measured by distances
    else:
        lines.insert(0, errors)
    if by_group:
        lines[0] = _first_within_groups(by_group, lines[0])
        if by_group["groups"] > 1:
            coverage += f" (standard errors of {by_group['groups']:,} independent groups)"
    lines.append(f"ratings inside their predictive intervals: {coverage}")
    if summary.get("bounded"):
        lines.append(
            f"test ratings: {summary['bounded']:,} of {summary['test_ratings']:,} are known only by"
            " bounds; log scores have the probability between them, errors and intervals leave them"
            " out"
        )
    untrained = describe_untrained(summary.get("untrained", {}))
    if untrained:
        lines.append(f"test ratings: {untrained}")
    if summary.get("agreement"):
        lines.append(_agreement(summary["agreement"]))
    return lines


def within_groups(by_group: Mapping[str, Any]) -> list[str]:
    """Return what the correlation within groups is called, and its mean over groups."""
    columns = ", ".join(map(plain, by_group["columns"]))
    if len(by_group["columns"]) > 1:
        columns = f"({columns})"
    mean = written(by_group["correlation"])
    if by_group["correlation_error"] is not None:
        mean += f" ± {by_group['correlation_error']:.4f}"
    return [f"correlation within {columns}", mean]


def _first_within_groups(by_group: Mapping[str, Any], line: str) -> str:
    """Return a line of scores after the correlation within groups, if there is one."""
    if by_group["correlation"] is None:
        return line
    label, mean = within_groups(by_group)
    groups = "1 group"
    if by_group["correlated_groups"] != 1:
        groups = f"{by_group['correlated_groups']:,} groups"
    return f"{label} {mean} ({groups}), {line}"


def covered(share: float, level: str, by_group: Mapping[str, Any] | None) -> str:
    """Write the share of ratings inside intervals of a level, with its error by group if known."""
    text = f"{share:.1%}"
    if by_group and by_group["coverage_error"][level] is not None:
        text += f" ± {by_group['coverage_error'][level]:.1%}"
    return text


def _why_unscored(summary: Summary) -> str:
    """Say why a run has no scores."""
    if not summary["draws"]:
        return "no RMSE: there is no draw yet"
    if summary.get("bounded"):
        return f"no RMSE: all {summary['bounded']:,} test ratings are known only by bounds"
    if summary.get("test_ratings"):  # clicks, which have no RMSE
        return f"no rankings: they need saved draws, and there are none ({named('save_draws')} 0)"
    return "no RMSE: no ratings were held out"


def _errors(summary: Summary) -> str:
    """Return a line with RMSE and MAE, the baselines' RMSE, and the precision of the noise.

    It begins with the RMSE of logarithms if these have the noise.
    """
    line = ""
    if "rmse_log" in summary:
        line = f"RMSE of logarithms {written(summary['rmse_log'])}, "
    point = summary.get("point", "mean")
    line += f"RMSE of the posterior {point} {written(summary['rmse_mean'])}"
    if summary.get("unit"):
        line += f" {plain(summary['unit'])}"
    simple = summary.get("baselines")
    if simple:
        line += f" (biases only {written(simple['biases_only'])}"
        line += f", mean only {written(simple['mean_only'])})"
    line += f", MAE {written(summary['mae_mean'])}"
    if summary.get("tau") is not None:
        line += f", tau {summary['tau']:.4g}"
    return line


def _log_score(summary: Summary) -> list[str]:
    """Return a line with the log score of the model, and of biases only if known; or no line."""
    impossible = summary.get("impossible")
    if impossible:
        return [
            f"log score of the test ratings -inf: {impossible:,} of {summary['test_ratings']:,}"
            " have probability 0"
        ]
    simple = summary.get("over_biases")
    name = "log_probability"
    compared = ""
    if simple:
        name = simple["measure"]
        compared = f" (biases only {simple['biases_only']:.4f})"
    if summary.get(name) is None:
        return []
    return [f"{LOG_SCORES[name]} {summary[name]:.4f}{compared}"]


def _two_levels(summary: Summary) -> list[str]:
    """Return a line with the scores of ratings that have two levels; or no line."""
    if "brier" not in summary:
        return []
    line = f"Brier score {summary['brier']:.4f}, log loss {summary['log_loss']:.4f}"
    if summary["auc"] is not None:
        line = f"AUC {summary['auc']:.4f}, {line}"
    return [line]


def _agreement(chains: Mapping[str, Any]) -> str:
    """Say whether the chains agree, by R-hat of the monitored predictions."""
    agree = "agree"
    if chains["above"] > MAX_SHARE_APART:
        agree = "do not agree"
    rhat = f"{chains['rhat_median']:.3f} (median), {chains['rhat_worst']:.3f}"
    return f"the chains {agree}: R-hat of predictions {rhat} (worst of {chains['pairs']})"


def _symbol(label: str) -> str:
    """Return the first words of a label, such as "tau, the precision of the noise"."""
    return plain(label).partition(", ")[0]


def _mixing(summary: Summary) -> list[str]:
    """Name the shared parameters that are not to be interpreted, and a remedy; no line if none.

    Nor is there one if a warning names them (`_unmixed`). A run that was stopped, and whose own
    length would do, is to go on to its end.
    """
    slow = (summary.get("slowest") or {}).get("shared", {})
    names = [_symbol(label) for label in slow.get("uncertain", [])]
    if not names or _unmixed(summary):
        return []
    line = (
        f"do not interpret {_listed(names)} from this run: the ESS of"
        f" {_symbol(slow['label'])} is {slow['ess']:,.0f}, and its mean {slow['mean']:.4g} is known"
        f" to ± {slow['error']:.2g}"
    )
    if not _stopped(summary) or slow["iterations"] > summary["iterations"]:
        line += (
            f"; about {slow['iterations']:,} iterations would do: {named('resume')}"
            f" {named('until')} none {named('iterations')} {slow['iterations']}"
        )
    return [line]


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and the number of others."""
    listed = ", ".join(names[:NAMED])
    if len(names) > NAMED:
        listed += f" and {len(names) - NAMED} more"
    return listed


def _speed(summary: Summary) -> list[str]:
    """Return seconds and ratings per second, and the process that others waited for, if any."""
    if "seconds_sampling" not in summary:
        return []
    rate = in_units(summary["ratings_per_second"])
    lines = [
        f"{summary['seconds_sampling']:.1f} s of sampling, {rate} ratings/s on"
        f" {summary['processes']} process(es)"
    ]
    slow = summary.get("straggler")
    if slow:
        lines.append(
            f"process {slow['process']} on {plain(slow['host'])} was the slowest: it worked for"
            f" {slow['busy_seconds']:.1f} s, other processes worked for"
            f" {slow['others_seconds']:.1f} s and waited for it"
        )
    return lines


def in_units(rate: float) -> str:
    """Write a rate; from 1,000 on, in thousands or millions with at least two digits."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if rate >= 10 * size:
            return f"{rate / size:.0f}{unit}"
        if rate >= size:
            return f"{rate / size:.1f}{unit}"
    return f"{rate:.0f}"


def written(error: float) -> str:
    """Write an error with four decimals, or with four digits below 0.1 or above 100,000."""
    if error == 0 or 0.1 <= abs(error) < 1e5:
        return f"{error:.4f}"
    return f"{error:.4g}"


def _ranking_lines(rankings: Mapping[str, Any]) -> list[str]:
    """Return lines with the measures of rankings, compared with rankings by popularity alone."""
    lines = []
    for name, ranking in _measures(rankings).items():
        label = name.replace("recall", "Recall").replace("ndcg", "NDCG")
        lines.append(
            f"{label} of held-out clicks {ranking['mean']:.4f} ({ranking['low']:.4f} to"
            f" {ranking['high']:.4f}; by popularity {ranking['popular']:.4f})"
        )
    return lines


def _measures(rankings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the measures among the entries of `dsgmcmc.diagnostics.ranking.click_scores`."""
    return {name: ranking for name, ranking in rankings.items() if name != "users"}


def ending(summary: Summary) -> str:
    """Say which iteration the chains reached, why they ended, and how to continue."""
    if summary.get("until"):
        return describe_ending(summary["until"])
    reached = summary["reached"]
    by_chain = ""
    several = ""
    if len(reached) > 1:
        by_chain = " (by chain)"
        several = f", {len(reached)} chains"
    if _stopped(summary):
        at = ", ".join(f"{iteration:,}" for iteration in reached)
        return (
            f"stopped at iteration {at} of {summary['iterations']:,}{by_chain}; continue with the"
            f" same command and {named('resume')}"
        )
    return f"finished: {min(reached):,} iterations{several}"


def _stopped(summary: Summary) -> bool:
    """Whether chains were stopped before their end."""
    until = summary.get("until")
    if until:
        return bool(not until["reached"] and until["iteration"] < until["limit"])
    return bool(min(summary["reached"], default=0) < summary["iterations"])


# ---------------------------------------------------------------------- warnings


#: Samplers without a metric of each row: half of a step that diverges is still too large.
WIDE_AFTER_DIVERGENCE = ("sgld", "hamcmc")


def doubts(summary: Summary) -> list[str]:
    """Return the warnings, most of them with a remedy."""
    fell_back = summary.get("fell_back", [])
    warnings = [_fell_back(event) for event in fell_back]
    if summary.get("sampler") in WIDE_AFTER_DIVERGENCE and any("chain" in e for e in fell_back):
        warnings.append(
            f"{summary['sampler']} with half of a step that diverged draws too widely: standard"
            f" deviations were 1.2 times as large where ratings were few. Use {named('sampler')}"
            f" gibbs or baoab, or a smaller {named('step_size')}"
        )
    if _ended_without_draws(summary):
        warnings.append(
            f"no draws, so nothing can be predicted: continue with {named('resume')} and more"
            f" {named('iterations')}"
        )
    rankings = _measures(summary.get("rankings") or {})
    if any(ranking["mean"] < ranking["popular"] for ranking in rankings.values()):
        warnings.append(
            f"rankings are worse than by popularity alone: try another {named('rank')}, or a"
            f" smaller {named('zero_weight')}"
        )
    warnings += temperature_warnings(summary.get("temperatures", {}))
    warnings += _unmixed(summary)
    has_errors = summary.get("rmse_mean") is not None
    if has_errors and not _stopped(summary):  # after a stop there may be too few draws to judge
        warnings += _worse_than_mean(summary)
        warnings += no_better(summary)
        warnings += _miscalibrated(summary)
    return warnings


def _reservations(summary: Summary) -> list[str]:
    """Say if the predictions have hardly mixed, or a simpler model has a smaller error."""
    reservations = []
    found = (summary.get("until") or {}).get("found", {})
    if found.get("ess", inf) < LEAST_ESS and not _stopped(summary):
        reservations.append(
            f"predictions are only as accurate as {found['ess']:.0f} independent draws: a longer"
            f" run ({named('resume')}), or another model, may give other scores"
        )
    simpler = summary.get("larger_error_than")
    if simpler:
        reservations.append(
            f"the log score of this model was better, its mean squared error worse than that of"
            f" {plain(simpler)}, which is simpler"
        )
    return reservations


def _fell_back(event: Mapping[str, Any]) -> str:
    """Name the model or chain that diverged, and the model or sampler that replaced it."""
    successor = plain(event["next"])
    if "model" in event:
        return (
            f"the model {plain(event['model'])} diverged, and {successor} was sampled in its place"
        )
    return (
        f"chain {event['chain']} diverged at iteration {event['iteration']:,}, and began again with"
        f" {successor}"
    )


def _unmixed(summary: Summary) -> list[str]:
    """Warn of shared parameters whose R-hat is large and whose ESS is small.

    The same warning names the others that are not to be interpreted.
    """
    unmixed = summary.get("unmixed")
    if not unmixed or _stopped(summary):
        return []
    names = [
        f"{_symbol(quantity['label'])} (R-hat {quantity['rhat']:.2f}, ESS {quantity['ess']:.0f})"
        for quantity in unmixed["quantities"]
    ]
    labels = {quantity["label"] for quantity in unmixed["quantities"]}
    slow = (summary.get("slowest") or {}).get("shared", {})
    others = [_symbol(label) for label in slow.get("uncertain", []) if label not in labels]
    advice = "do not interpret these"
    if others:
        advice += f", nor {_listed(others)}"
    iterations = max(unmixed["iterations"], slow.get("iterations", 0))
    return [
        f"the draws have not mixed in {_listed(names)}: {advice}, whatever the accuracy of"
        f" predictions; continue with {named('resume')}, {named('until')} none and"
        f" {named('iterations')} {iterations}"
    ]


def _ended_without_draws(summary: Summary) -> bool:
    if summary["draws"] or not summary["reached"]:
        return False
    return bool(min(summary["reached"]) >= summary["iterations"])


def _worse_than_mean(summary: Summary) -> list[str]:
    """Warn if predicting the mean of the ratings has a smaller RMSE."""
    mean_only = (summary.get("baselines") or {}).get("mean_only", inf)
    if summary["rmse_mean"] <= mean_only:
        return []
    return [f"the RMSE is worse than the RMSE of predicting the mean ({written(mean_only)})"]


def no_better(summary: Summary) -> list[str]:
    """Warn unless a run beats biases only by a standard error in log score and squared error.

    A run of the biases-only model gets no warning.
    """
    over = summary.get("over_biases")
    if not over:
        return []
    gain = over["gain"]
    error = over["gain_error"]
    if max(abs(gain), error) < UNSEEN:  # both predict every level exactly
        return []
    if gain < error:
        side = "higher"
        if gain < 0:
            side = "lower"
        return [
            f"{_comparative(gain, error)} than biases only: the {LOG_SCORES[over['measure']]} is"
            f" {side} by {abs(gain):.4f} (standard error {error:.4f}); biases only"
            f" ({named('rank')} 0) is simpler, and {named('model')} auto looks for a better model"
        ]
    reduction = over["square"]
    error = over["square_error"]
    if reduction < error:
        side = "lower"
        if reduction < 0:
            side = "higher"
        return [
            f"{_comparative(reduction, error)} than biases only in the mean squared error, which is"
            f" {side} by {abs(reduction):.4g} (standard error {error:.2g}); its"
            " predictive distributions are better"
        ]
    return []


def _comparative(gain: float, error: float) -> str:
    """Name a gain that is less than its standard error."""
    if gain <= -error:
        return "worse"
    return "no better"


def _miscalibrated(summary: Summary) -> list[str]:
    """Warn if intervals of some levels contain too many or too few test ratings, beyond chance."""
    coverage = summary["coverage"]
    shares: dict[str, list[str]] = {"narrow": [], "wide": []}
    for name in COVERAGE_OFF:
        if name != "0.9" and name not in coverage:
            continue
        level = float(name)
        off = coverage[name] - level
        # intervals are rounded to levels, which adds to coverage, but not to the width
        if off > 0 and summary.get("narrower_than_levels"):
            continue
        if abs(off) <= max(COVERAGE_OFF[name], _chance(summary, name, is_wide=off > 0)):
            continue
        size = "narrow"
        if off > 0:
            size = "wide"
        shares[size].append(f"{100 * level:.0f} % intervals contain {coverage[name]:.1%}")
    return [
        f"{', '.join(found)} of the test ratings: predictive distributions are too {size}"
        for size, found in shares.items()
        if found
    ]


def _chance(summary: Summary, name: str, *, is_wide: bool) -> float:
    """Return by how much coverage may differ from a level by chance.

    Ratings of a group that was held out share an error, and so do all test ratings of a user or
    item without training ratings, which count once. Groups seem alike if all happen to be inside
    their intervals: for too much coverage, a group counts at most as one rating.
    """
    level = float(name)
    sd = sqrt(level * (1 - level))
    number = max(1, summary.get("test_ratings", 10**6) - summary.get("bounded", 0))
    by_group = summary.get("by_group")
    if by_group is None:
        return 3 * sd / sqrt(max(1, min(number, summary.get("independent", number))))
    if by_group["groups"] < LEAST_GROUPS:
        return inf
    from scipy.special import stdtrit  # here, because most runs do not need it

    sds = float(stdtrit(by_group["groups"] - 1, BEYOND_CHANCE))
    error: float = by_group["coverage_error"][name]
    chance = max(3 * sd / sqrt(number), sds * error)
    if is_wide:
        chance = max(chance, SDS_OF_GROUPS * sd / sqrt(by_group["effective_groups"]))
    return chance


def temperature_warnings(temperatures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Warn about fields whose temperature is significantly above `WARNED_TEMPERATURE`."""
    names = [
        name
        for name, field in temperatures.items()
        if field["value"] - 4 * field["error"] > WARNED_TEMPERATURE
    ]
    if not names:
        return []
    values = ", ".join(f"{name} {temperatures[name]['value']:.2f}" for name in names)
    return [
        f"temperatures that should be 1 are {values}: the chain has not reached its posterior yet,"
        f" or its steps are too large; sample longer, then try a smaller {named('step_size')}"
    ]
