"""Everything about targets that are plain vectors: densities, their samplers, their runs, and what draws are asked.

`targets` has what is sampled, `metropolis` and `sgmcmc` samplers of densities alone; those of `dsgmcmc.samplers` sample
them, too. No room below imports this one: the registries there name its classes by strings.
"""
