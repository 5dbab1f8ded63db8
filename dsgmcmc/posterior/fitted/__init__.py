"""A fitted model with the conventions of scikit-learn, and `open_run`."""

from dsgmcmc.posterior.fitted.model import FittedModel, open_run

__all__ = ["FittedModel", "open_run"]
