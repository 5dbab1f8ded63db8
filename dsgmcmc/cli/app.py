"""The ``dsgmcmc`` command: registers every subcommand and turns errors into messages and exit codes."""

from __future__ import annotations

import sys

import typer

from dsgmcmc.cli.cluster.bench import bench
from dsgmcmc.cli.cluster.doctor import doctor
from dsgmcmc.cli.cluster.launch_script import launch_script
from dsgmcmc.cli.data.fetch import fetch
from dsgmcmc.cli.data.prepare import prepare
from dsgmcmc.cli.data.synthetic import synthetic
from dsgmcmc.cli.info import info
from dsgmcmc.cli.posterior.export import export
from dsgmcmc.cli.posterior.foldin import foldin
from dsgmcmc.cli.posterior.predict import predict
from dsgmcmc.cli.posterior.recommend import recommend
from dsgmcmc.cli.posterior.report import report
from dsgmcmc.cli.sample import sample
from dsgmcmc.cli.verify import verify
from dsgmcmc.errors import EXIT_USAGE, InputError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(fetch)
app.command()(synthetic)
app.command()(prepare)
app.command()(sample)
app.command()(predict)
app.command()(recommend)
app.command()(foldin)
app.command()(export)
app.command()(report)
app.command()(info)
app.command()(verify)
app.command()(doctor)
app.command()(launch_script)
app.add_typer(bench, name="bench")


def main() -> None:
    """Run the command line; a wrong input ends in one line on stderr and exit status 2."""
    try:
        app()
    except InputError as error:
        print(f"dsgmcmc: {error}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
