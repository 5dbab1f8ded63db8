"""The ``dsgmcmc`` command: registers every subcommand and turns errors into messages and exit codes."""

from __future__ import annotations

import sys

import typer

from dsgmcmc.commands.bench import bench
from dsgmcmc.commands.doctor import doctor
from dsgmcmc.commands.export import export
from dsgmcmc.commands.fetch import fetch
from dsgmcmc.commands.foldin import foldin
from dsgmcmc.commands.inspect import info, verify
from dsgmcmc.commands.launch_script import launch_script
from dsgmcmc.commands.predict import predict
from dsgmcmc.commands.prepare import prepare
from dsgmcmc.commands.recommend import recommend
from dsgmcmc.commands.report import report
from dsgmcmc.commands.sample import sample
from dsgmcmc.commands.synthetic import synthetic
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
