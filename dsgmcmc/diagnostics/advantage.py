"""A sentence about a run that predicts held-out ratings no better than biases only, from its ``summary.json``.

A model is better where its log score is higher, and its mean squared error lower, by more than the standard error of
the difference (`dsgmcmc.diagnostics.baselines.advantage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Log scores by their names in a summary, as they are written.
LOG_SCORES = {
    "log_probability": "log probability of a rating's level",
    "log_predictive_density": "log predictive density of a rating",
}


def no_better(summary: Mapping[str, Any]) -> list[str]:
    """Say so if a run does not beat biases only by a standard error; nothing of a run that is biases only."""
    found = summary.get("over_biases")
    if not found:
        return []
    gain, error, square = found["gain"], found["gain_error"], found["square"]
    if gain >= error and square >= found["square_error"]:
        return []
    advice = "plain biases only, --rank 0, is simpler, and --model auto looks for a better model"
    if gain >= error:
        side = f"{'lower' if square >= 0 else 'higher'} by {abs(square):.4g}"
        return [
            f"no better than biases only in the mean squared error, which is {side} (standard error "
            f"{found['square_error']:.2g}); its predictive distributions are better"
        ]
    side, better = ("higher", "no better") if gain >= 0 else ("lower", "no better" if gain > -error else "worse")
    measured = f"the {LOG_SCORES[found['measure']]} is {side} by {abs(gain):.4f} (standard error {error:.4f})"
    return [f"{better} than biases only: {measured}; {advice}"]
