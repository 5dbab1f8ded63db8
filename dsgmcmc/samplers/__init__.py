"""The samplers: one file, one algorithm. To add one, write its file and name it here."""

from __future__ import annotations

from typing import Any

from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.sgmcmc.baoab import BAOAB
from dsgmcmc.samplers.sgmcmc.hamcmc import HAMCMC
from dsgmcmc.samplers.sgmcmc.psgld import PSGLD
from dsgmcmc.samplers.sgmcmc.sgld import SGLD

SAMPLERS: dict[str, type[Sampler[Any]]] = {"sgld": SGLD, "psgld": PSGLD, "hamcmc": HAMCMC, "baoab": BAOAB}
