"""Options that several commands share, spelled once."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Option(
        help="What to read: 'smollm2-135m' (packaged, needs no hub), a hub name, a local folder or a .gguf file."
    ),
]
Text = Annotated[
    str,
    typer.Option(
        help="'python-docs' (ships with Python), a .txt/.jsonl/.parquet file, a folder of them, or a datasets name."
    ),
]
TextColumn = Annotated[str, typer.Option(help="Where text has columns: the one that holds it.")]
Split = Annotated[
    str, typer.Option(help="Which documents: all, train or heldout (by a hash of each document).")
]
Tokens = Annotated[
    str | None,
    typer.Option(
        help="How many tokens: 200000, 500k, 1M. Default: the whole text (of a streamed data set, say how many)."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]
Engine = Annotated[str, typer.Option(help="huggingface or transformer_lens.")]
Dtype = Annotated[str, typer.Option(help="The model's precision: float32, bfloat16, float16.")]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", help="Run the Python code that comes with the model; read it before."
    ),
]
Layers = Annotated[
    int | None,
    typer.Option(help="Load only the first N layers (harvesting never runs the deeper ones anyway)."),
]
