"""What the priors of a factor's rows have besides m and Lambda: one file for each kind of it."""

from dsgmcmc.targets.factorisation.priors.base import PriorMean
from dsgmcmc.targets.factorisation.priors.features import FeatureEffects
from dsgmcmc.targets.factorisation.priors.implicit import ImplicitFeatures

__all__ = ["FeatureEffects", "ImplicitFeatures", "PriorMean"]
