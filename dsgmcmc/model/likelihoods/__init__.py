"""Distributions of a rating given its predictor; a new likelihood must be listed here."""

from dsgmcmc.model.likelihoods.all_cells import AllCells, ClickSettings
from dsgmcmc.model.likelihoods.base import Law
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.likelihoods.likelihood import Likelihood
from dsgmcmc.model.likelihoods.negative_binomial import NegativeBinomial
from dsgmcmc.model.likelihoods.ordinal.levels import Levels
from dsgmcmc.model.likelihoods.ordinal.ordinal import Ordinal, ThresholdSettings
from dsgmcmc.model.likelihoods.student_t import StudentT

LIKELIHOODS: dict[str, type[Law]] = {
    "gaussian": GaussianRatings,
    "student-t": StudentT,
    "ordinal-logit": Ordinal,
    "negative-binomial": NegativeBinomial,
    "all-cells": AllCells,
}


class LikelihoodSettings(ClickSettings, ThresholdSettings):
    """Settings that only some likelihoods have."""


__all__ = ["LIKELIHOODS", "Law", "Levels", "Likelihood", "LikelihoodSettings"]
