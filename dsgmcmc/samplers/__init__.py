"""The samplers: one file, one algorithm. To add one, write its file and name it here."""

from __future__ import annotations

from typing import Any

from dsgmcmc.samplers.baoab import BAOAB
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.hamcmc import HAMCMC
from dsgmcmc.samplers.psgld import PSGLD
from dsgmcmc.samplers.sgld import SGLD

SAMPLERS: dict[str, type[Sampler[Any]]] = {"sgld": SGLD, "psgld": PSGLD, "hamcmc": HAMCMC, "baoab": BAOAB}
