"""One Typer command a file; `dsgmcmc.cli` registers them."""
