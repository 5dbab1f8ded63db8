"""Densities on plain vectors, their samplers, and their draws in memory.

`density` and `models` define densities, `sample` their chains, and `verdict` what is
wrong with draws. The samplers here are for densities alone: `mh`, `hmc`, `mala` and `scalable` on
the base of `metropolis`, and `riemannian`, `matrix_sgnht` and `adjusted_sgld`. The samplers in
`dsgmcmc.samplers` sample densities, too, except for `gibbs`. `registry` has all of them, and
`settings` what a density changes in their settings. Lower packages do not import this package.

Users import from here `sample_density`, `Density`, and `SAMPLERS`, the classes of all samplers by
name.
"""

from dsgmcmc.densities.density import Density
from dsgmcmc.densities.registry import SAMPLERS
from dsgmcmc.densities.sample import sample_density

__all__ = ["SAMPLERS", "Density", "sample_density"]
