"""One command a file, in the room that it fronts; `dsgmcmc.cli.app.app` registers them. No logic but that of options.

Options that commands share are in `dsgmcmc.cli.options`. Importing the room loads nothing.
"""
