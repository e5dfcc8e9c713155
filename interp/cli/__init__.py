"""The ``interp`` command: parse, call the library, print. Every option is a library argument of that name."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from interp.cli import markov, probe, recall, sae, steer

_INTERRUPTED = 130

app = typer.Typer(
    name="interp",
    help="Look inside language models: sparse autoencoders, steering vectors, syntax probes, tokenization, recall.\n\n"
    "For a sparse autoencoder the order is  harvest -> train -> evaluate -> report.  Each step leaves a folder that "
    "the next one reads; an interrupted step continues where it stopped when run again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(sae.app)
app.add_typer(steer.app, name="steer")
app.add_typer(probe.app, name="probe")
app.add_typer(markov.app, name="markov")
app.add_typer(recall.app, name="recall")


@app.callback()
def _setup(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the library's debug messages.")
    ] = False,
) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, format="%(message)s", stream=sys.stderr, force=True
    )
    for noisy in ("httpx", "urllib3", "filelock", "numba", "matplotlib", "fsspec"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("huggingface_hub").propagate = False  # it prints its own messages


def main() -> None:
    """Entry point: user errors become one line and exit code 2; an interrupt says how to go on, exit code 130."""
    try:
        app()
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError, MemoryError) as error:
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            raise
        typer.echo(f"error: {_in_words(error)}", err=True)
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:  # typer has turned the KeyboardInterrupt into it
            typer.echo("interrupted; run the same command again to continue", err=True)
        raise


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__
