"""One Typer command a file; `dsgmcmc.cli.app` registers them."""
