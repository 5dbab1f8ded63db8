"""What the priors of a factor's rows have besides m and Lambda: one file for each kind of it."""

from dsgmcmc.model.priors.base import PriorMean
from dsgmcmc.model.priors.features import FeatureEffects
from dsgmcmc.model.priors.implicit import ImplicitFeatures

__all__ = ["FeatureEffects", "ImplicitFeatures", "PriorMean"]
