"""Temperatures of a finished run, which say whether its steps were small enough; see `dsgmcmc.samplers.temperature`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsgmcmc.storage.rundir import RunDirectory

#: A temperature above this, and not by chance, is warned of.
WARM = 1.05

VALUE, ERROR = "temperature.", "temperature_error."


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
    found: dict[str, dict[str, float]] = {}
    newest = {line["chain"]: line for line in run.metrics()}
    for line in newest.values():
        for name in (name.removeprefix(VALUE) for name in line if name.startswith(VALUE)):
            factor, _, what = name.partition(".")
            label = f"{'item' if (factor == 'W') == transposed else 'user'} {what}"
            each = {"value": line[VALUE + name], "error": line[ERROR + name]}
            found[label] = max(found.get(label, each), each, key=lambda both: both["value"])
    return found


def warm(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a warning that names the fields whose momenta are too hot, if there are some."""
    hot = [name for name, each in found.items() if each["value"] - 4 * each["error"] > WARM]
    if hot:
        values = ", ".join(f"{name} {found[name]['value']:.2f}" for name in hot)
        yield (
            f"temperatures that should be 1 are {values}: the chain has not reached its posterior yet, or its steps "
            "are too large; sample longer, then try a smaller --step-size"
        )
