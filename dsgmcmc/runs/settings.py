"""The settings of ``dsgmcmc compare``: each is declared once, for its option and for Python.

This file loads no libraries for numbers, because ``dsgmcmc compare --help`` reads it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from dsgmcmc.settings import Checked, setting

#: Criterion by which models are compared.
Metric = Literal["log-probability", "log-density", "rmse", "ndcg"]


class CompareSettings(Checked):
    """Settings of ``dsgmcmc compare`` that are no settings of the compared models."""

    in_file: ClassVar[bool] = False

    metric: Metric | None = setting(
        "Criterion by which models are compared.",
        None,
        shown="log-probability; log-density if ratings have no levels; ndcg for clicks",
    )
    seed: int | None = setting(
        "Seed for holding out ratings, and for the chains.  [default: 0]", None, ge=0
    )
    force: bool = setting("Replace FILE.toml.", False)
