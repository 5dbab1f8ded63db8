"""Laws of a rating given its linear predictor: one likelihood a file. To add one, write its file and name it here."""

from dsgmcmc.targets.factorisation.likelihoods.base import Likelihood
from dsgmcmc.targets.factorisation.likelihoods.gaussian import Gaussian

LIKELIHOODS: dict[str, type[Likelihood]] = {"gaussian": Gaussian}

__all__ = ["LIKELIHOODS", "Likelihood"]
