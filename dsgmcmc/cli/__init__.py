"""Commands of ``dsgmcmc``, registered by `dsgmcmc.cli.app.app`. They handle options, and call other packages.

Options that several commands share are in `dsgmcmc.cli.options`. Importing this package loads nothing else.
"""
