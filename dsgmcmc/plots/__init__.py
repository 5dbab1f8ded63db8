"""Pictures of results and of sampling, and the report that shows them.

Each function takes an opened run (`dsgmcmc.posterior.run.Run`, the ``run_`` of a fitted model) and
draws on Matplotlib axes, new ones or those that are given, and returns the axes to be changed.
"""
