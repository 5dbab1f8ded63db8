"""The results and times of a job: ``summary.json``, and a short text about the run, made from this
file.

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

from dsgmcmc.data.ratings import describe_untrained
from dsgmcmc.diagnostics.convergence import MAX_SHARE_APART, describe_ending
from dsgmcmc.errors import InputError, refusing
from dsgmcmc.storage.files import read_plain, write_whole
from dsgmcmc.storage.store import seal, unseal
from dsgmcmc.terminal import plain

MAX_BYTES = 1 << 22
COVERAGE_OFF = 0.02  # warn if coverage of 90 % intervals is further from 0.9, beyond chance

UNSEEN = 1e-4  # differences of log scores below this are not reported

#: A temperature significantly above this value gives a warning.
WARNED_TEMPERATURE = 1.05

#: Texts for the log scores, by their names in a summary.
LOG_SCORES = {
    "log_probability": "log probability of a rating's level",
    "log_predictive_density": "log predictive density of a rating",
}

NAMED = 3  # number of shared parameters that the text names

Summary = Mapping[str, Any]


def save_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write a summary, with null for numbers that are not finite, and its checksum.

    Raises OSError if that fails.
    """
    finite = json.loads(json.dumps(summary), parse_constant=lambda name: None)
    write_whole(path, seal(json.dumps(finite, indent=1)))


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
    """

    result: list[str]
    warnings: list[str]
    end: list[str]

    def lines(self) -> list[str]:
        """All lines, as they are printed."""
        return [*self.result, *(f"warning: {warning}" for warning in self.warnings), *self.end]


def describe_run(summary: Summary, cautions: Sequence[str] = ()) -> RunText:
    """Judge a run by its summary; `cautions` are the warnings given at its start."""
    result = [*_scores(summary), *_mixing(summary)]
    return RunText(result, [*cautions, *doubts(summary)], [*_speed(summary), ending(summary)])


def _scores(summary: Summary) -> list[str]:
    """Return lines with scores and baselines, coverage, and agreement of the chains; for clicks,
    scores of rankings.
    """
    if summary.get("rankings"):
        return _ranking_lines(summary["rankings"])
    if summary.get("rmse_mean") is None:
        if not summary["draws"]:
            return ["no RMSE: there is no draw yet"]
        if summary.get("test_ratings"):  # clicks, which have no RMSE
            return ["no rankings: they need saved draws, and there are none (--save-draws 0)"]
        return ["no RMSE: no ratings were held out"]
    compared = ""
    if simple := summary.get("baselines"):
        compared = (
            f" (biases only {written(simple['biases_only'])}, mean only"
            f" {written(simple['mean_only'])})"
        )
    coverage = ", ".join(
        f"{float(level):.0%}: {share:.1%}" for level, share in summary["coverage"].items()
    )
    noise = "" if summary.get("tau") is None else f", tau {summary['tau']:.4g}"
    logarithms = (
        f", RMSE of logarithms {written(summary['rmse_log'])}" if "rmse_log" in summary else ""
    )
    two_levels = []
    if "brier" in summary:
        auc = "" if summary["auc"] is None else f"AUC {summary['auc']:.4f}, "
        two_levels = [
            f"{auc}Brier score {summary['brier']:.4f}, log loss {summary['log_loss']:.4f}"
        ]
    lines = [
        (
            f"RMSE of the posterior {summary.get('point', 'mean')}"
            f" {written(summary['rmse_mean'])}{compared}, MAE"
            f" {written(summary['mae_mean'])}{logarithms}{noise}"
        ),
        *_log_score(summary),
        *two_levels,
        f"ratings inside their predictive intervals: {coverage}",
    ]
    if untrained := describe_untrained(summary.get("untrained", {})):
        lines.append(f"test ratings: {untrained}")
    if chains := summary.get("agreement"):
        agree = "agree" if chains["above"] <= MAX_SHARE_APART else "do not agree"
        rhat = (
            f"{chains['rhat_median']:.3f} (median), {chains['rhat_worst']:.3f} (worst of"
            f" {chains['pairs']})"
        )
        lines.append(f"the chains {agree}: R-hat of predictions {rhat}")
    return lines


def _log_score(summary: Summary) -> list[str]:
    """Return a line with the log score of the model, and of biases only if it is known; or no line."""
    if impossible := summary.get("impossible"):
        return [
            f"log score of the test ratings -inf: {impossible:,} of {summary['test_ratings']:,}"
            " have probability 0"
        ]
    simple = summary.get("over_biases")
    name = simple["measure"] if simple else "log_probability"
    if summary.get(name) is None:
        return []
    compared = f" (biases only {simple['biases_only']:.4f})" if simple else ""
    return [f"{LOG_SCORES[name]} {summary[name]:.4f}{compared}"]


def _symbol(label: str) -> str:
    """Return the first words of a label, such as "tau, the precision of the noise"."""
    return plain(label).partition(", ")[0]


def _mixing(summary: Summary) -> list[str]:
    """Name the shared parameters that are not to be interpreted, and what would help; no line if
    there are none.
    """
    slow = (summary.get("slowest") or {}).get("shared", {})
    if not (names := [_symbol(label) for label in slow.get("uncertain", [])]):
        return []
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return [
        f"do not interpret {', '.join(names[:NAMED])}{more} from this run: the ESS of"
        f" {_symbol(slow['label'])} is {slow['ess']:,.0f}, and its mean {slow['mean']:.4g} is known"
        f" to ± {slow['error']:.2g}; about {slow['iterations']:,} iterations would do: --resume"
        f" --until none --iterations {slow['iterations']}"
    ]


def _speed(summary: Summary) -> list[str]:
    """Return seconds, ratings per second, and the process for which other processes waited, if
    there was one.
    """
    if "seconds_sampling" not in summary:
        return []
    rate = in_units(summary["ratings_per_second"])
    lines = [
        f"{summary['seconds_sampling']:.1f} s of sampling, {rate} ratings/s on"
        f" {summary['processes']} process(es)"
    ]
    if slow := summary.get("straggler"):
        others = f"other processes worked for {slow['others_seconds']:.1f} s and waited for it"
        worked = f"it worked for {slow['busy_seconds']:.1f} s, {others}"
        lines.append(
            f"process {slow['process']} on {plain(slow['host'])} was the slowest: {worked}"
        )
    return lines


def in_units(rate: float) -> str:
    """Write a rate; from 1,000 on, in thousands or millions with at least two digits."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if rate >= size:
            return f"{rate / size:.{0 if rate >= 10 * size else 1}f}{unit}"
    return f"{rate:.0f}"


def written(error: float) -> str:
    """Write an error with four decimals, or with four significant digits below 0.1 or above
    100,000.
    """
    return f"{error:.4f}" if error == 0 or 0.1 <= abs(error) < 1e5 else f"{error:.4g}"


def _ranking_lines(rankings: Mapping[str, Any]) -> list[str]:
    """Return lines with the measures of the rankings, compared with rankings by popularity alone."""
    return [
        f"{name.replace('recall', 'Recall').replace('ndcg', 'NDCG')} of held-out clicks"
        f" {ranking['mean']:.4f} ({ranking['low']:.4f} to {ranking['high']:.4f}; by popularity"
        f" {ranking['popular']:.4f})"
        for name, ranking in rankings.items()
        if name != "users"
    ]


def ending(summary: Summary) -> str:
    """Say which iteration the chains reached, why they ended, and how to continue."""
    if summary.get("until"):
        return describe_ending(summary["until"])
    reached, iterations = summary["reached"], summary["iterations"]
    if _stopped(summary):
        at, by_chain = (
            ", ".join(f"{iteration:,}" for iteration in reached),
            "" if len(reached) == 1 else " (by chain)",
        )
        return (
            f"stopped at iteration {at} of {iterations:,}{by_chain}; continue with the same command"
            " and --resume"
        )
    several = f", {len(reached)} chains" if len(reached) > 1 else ""
    return f"finished: {min(reached):,} iterations{several}"


def _stopped(summary: Summary) -> bool:
    """Whether chains were stopped before their end."""
    if until := summary.get("until"):
        return bool(not until["reached"] and until["iteration"] < until["limit"])
    return bool(min(summary["reached"], default=0) < summary["iterations"])


def _fell_back(event: Mapping[str, Any]) -> str:
    """Name the model or chain that diverged, and the model or sampler that replaced it."""
    if "model" in event:
        return (
            f"the model {plain(event['model'])} diverged, and {plain(event['next'])} was sampled in"
            " its place"
        )
    next_sampler = plain(event["next"])
    return (
        f"chain {event['chain']} diverged at iteration {event['iteration']:,}, and began again with"
        f" {next_sampler}"
    )


def doubts(summary: Summary) -> list[str]:
    """Return the warnings, most of them with a remedy."""
    warnings = [_fell_back(event) for event in summary.get("fell_back", [])]
    if (
        summary["reached"]
        and not summary["draws"]
        and min(summary["reached"]) >= summary["iterations"]
    ):
        warnings.append(
            "no draws, so nothing can be predicted: continue with --resume and more --iterations"
        )
    rankings = summary.get("rankings") or {}
    if any(
        ranking["mean"] < ranking["popular"]
        for name, ranking in rankings.items()
        if name != "users"
    ):
        warnings.append(
            "rankings are worse than by popularity alone: try another --rank, or a smaller"
            " zero_weight"
        )
    warnings += temperature_warnings(summary.get("temperatures", {}))
    if summary.get("rmse_mean") is None or _stopped(
        summary
    ):  # the checks below need an RMSE and enough draws
        return warnings
    simple = summary.get("baselines") or {}
    if summary["rmse_mean"] > simple.get("mean_only", inf):
        warnings.append(
            "the RMSE is worse than the RMSE of predicting the mean"
            f" ({written(simple['mean_only'])})"
        )
    warnings.extend(no_better(summary))
    inside = summary["coverage"]["0.9"]
    finest = inside > 0.9 and summary.get(
        "narrower_than_levels"
    )  # rounding adds to coverage, not width
    if not finest and abs(inside - 0.9) > max(
        COVERAGE_OFF, 3 * sqrt(0.9 * 0.1 / summary.get("test_ratings", 10**6))
    ):
        size = "too wide" if inside > 0.9 else "too narrow"
        warnings.append(
            f"90 % intervals contain {inside:.1%} of the test ratings: predictive distributions are"
            f" {size}"
        )
    return warnings


def no_better(summary: Summary) -> list[str]:
    """Warn unless a run is better than the biases-only model by a standard error in log score and
    squared error.

    A run of the biases-only model gets no warning.
    """
    if not (over := summary.get("over_biases")):
        return []
    gain, error, square = over["gain"], over["gain_error"], over["square"]
    if max(abs(gain), error) < UNSEEN:  # both predict every level exactly
        return []
    if gain < error:
        better = "worse" if gain <= -error else "no better"
        side = "higher" if gain >= 0 else "lower"
        return [
            f"{better} than biases only: the {LOG_SCORES[over['measure']]} is {side} by"
            f" {abs(gain):.4f} (standard error {error:.4f}); biases only (--rank 0) is simpler, and"
            " --model auto looks for a better model"
        ]
    if square < over["square_error"]:
        better = "worse" if square <= -over["square_error"] else "no better"
        return [
            f"{better} than biases only in the mean squared error, which is"
            f" {'lower' if square >= 0 else 'higher'} by {abs(square):.4g} (standard error"
            f" {over['square_error']:.2g}); its predictive distributions are better"
        ]
    return []


def temperature_warnings(temperatures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Warn about fields whose momenta have a temperature significantly above `WARNED_TEMPERATURE`."""
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
        " or its steps are too large; sample longer, then try a smaller --step-size"
    ]
