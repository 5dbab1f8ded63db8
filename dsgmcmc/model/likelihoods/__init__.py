"""Laws of a rating given its linear predictor: one likelihood a file. To add one, write its file and name it here."""

from dsgmcmc.model.likelihoods.all_cells import AllCells, ClickSettings
from dsgmcmc.model.likelihoods.base import Law, Levels, Likelihood
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.likelihoods.negative_binomial import NegativeBinomial
from dsgmcmc.model.likelihoods.ordinal import OrdinalLogit, OrdinalProbit
from dsgmcmc.model.likelihoods.student_t import StudentT
from dsgmcmc.model.likelihoods.thresholds import ThresholdSettings

LIKELIHOODS: dict[str, type[Law]] = {
    "gaussian": Gaussian,
    "student-t": StudentT,
    "ordinal-logit": OrdinalLogit,
    "ordinal-probit": OrdinalProbit,
    "negative-binomial": NegativeBinomial,
    "all-cells": AllCells,
}

#: Other names: of 0 and 1, two levels, these are logistic and probit regression.
SYNONYMS = {"logit": "ordinal-logit", "probit": "ordinal-probit"}


class LikelihoodSettings(ClickSettings, ThresholdSettings):
    """Settings that only some likelihoods have."""


__all__ = ["LIKELIHOODS", "SYNONYMS", "Law", "Levels", "Likelihood", "LikelihoodSettings"]
