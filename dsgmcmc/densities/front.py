"""The density that users import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from dsgmcmc.densities.targets import density as protocol
from dsgmcmc.densities.targets.autodiff import JaxDensity, TorchDensity


class Density(protocol.Density):
    """Base of a density of yours, if you want one: everything that has the members of the protocol will do.

    It makes densities of log laws that JAX or PyTorch can differentiate.
    """

    @staticmethod
    def from_jax(
        log_likelihood: Callable[[Any, Any], Any],
        data: Any,
        params: Any,
        *,
        log_prior: Callable[[Any], Any] | None = None,
        dtype: Literal["float32", "float64"] = "float64",
    ) -> JaxDensity:
        """Make a density of a log likelihood that JAX can differentiate.

        Parameters
        ----------
        log_likelihood : callable
            ``f(params, data)`` of some of the data: their sum, or an array of which the sum is taken. It is compiled
            once for all data, and once for each size of a part, of which there are two at most.
        data : tree of arrays
            One row a datum in each; None if there are none.
        params : tree of arrays
            Parameters, about which chains start. Draws come back in this form: ``density.tree(theta)``.
        log_prior : callable, optional
            ``f(params)``; flat if not given. For a normal prior it may be left to `prior_mean` and `prior_precision`.
        dtype : {"float64", "float32"}
            In which it is evaluated, whatever JAX's own default is.

        Raises
        ------
        InputError
            If JAX is not installed, or data have different numbers of rows.
        """
        return JaxDensity(log_likelihood, data, params, log_prior, dtype)

    @staticmethod
    def from_torch(
        log_likelihood: Callable[[Any, Any], Any],
        data: Any,
        params: Any,
        *,
        log_prior: Callable[[Any], Any] | None = None,
        dtype: Literal["float32", "float64"] = "float64",
    ) -> TorchDensity:
        """Make a density of a log likelihood that PyTorch can differentiate, by `torch.func`.

        Parameters
        ----------
        log_likelihood : callable
            ``f(params, data)`` of some of the data, with `params` a dict of tensors; of a module
            ``torch.func.functional_call(module, params, x)``.
        data : tensor, tuple of tensors, or None
            One row a datum in each.
        params : dict of tensors, or torch.nn.Module
            Parameters by their names, about which chains start. Draws come back so: ``density.named(theta)``.
        log_prior, dtype
            As of `from_jax`.

        Raises
        ------
        InputError
            If PyTorch is not installed, or data have different numbers of rows.
        """
        return TorchDensity(log_likelihood, data, params, log_prior, dtype)
