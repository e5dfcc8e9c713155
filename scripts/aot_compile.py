"""Compile every Triton kernel for sm_80 and sm_90 without a GPU; print registers and spills, fail on spills.

    python scripts/aot_compile.py [--arch 80 90] [--only REGEX] [--json FILE]

A kernel that Triton or ptxas refuses fails with their message. "stack" is what ptxas had to spill per thread.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from interp.sae.kernels.triton import codes, encode, latents, select, tokens, vectors, walk
from interp.sae.kernels.triton.launch import gather_blocks, whole_row_blocks

STACK_BOUND = 64  # bytes per thread; anything more means a kernel outgrew its registers
ARCHITECTURES = (80, 90)


def types(**names: str) -> dict[str, str]:
    """Types by argument name, grouped by type: ``F="x W_dec"`` makes both pointers to float32."""
    of = {
        "F": "*fp32",
        "B": "*bf16",
        "I": "*i32",
        "L": "*i64",
        "i": "i32",
        "l": "i64",
        "f": "fp32",
        "g": "fp64",
        "T": "*i1",
    }
    return {name: of[letter] for letter, group in names.items() for name in group.split()}


ANY_ALIGNMENT = ("first", "room", "step", "length", "k")  # integers that need not be multiples of 16
ADAM = types(f="lr fresh eps correction", g="log2_beta2", i="step")


@dataclass
class Case:
    """One way a kernel is launched: types of its run-time arguments, values of its constants."""

    name: str
    kernel: Any
    types: dict[str, str]
    constants: dict[str, Any]
    warps: int
    stages: int = 3
    absent: tuple[str, ...] = ()  # pointers given as None


def cases() -> Iterator[Case]:
    """Every kernel with the constants of real sizes; widths with a remainder take the masked paths."""
    yield from _encoder_cases()
    yield from _token_cases()
    yield from _latent_cases()


def _encoder_cases() -> Iterator[Case]:
    lists = ("list_tokens", "list_latents", "list_values", "length", "hits", "per_token")
    for precision, tile in encode.TILES.items():
        narrow = precision == "bf16"
        inputs = types(B="xc weight") if narrow else types(F="xc weight")
        for what, even, absolute, absent in (
            ("", True, False, ("bias", "scale", "dense")),
            (" masked", False, False, ("bias", "scale", "dense")),
            (" scores", True, False, ("scale", "dense")),
            (" scores by norm masked", False, True, ("dense",)),
            (" whole", True, False, ("threshold", "bias", "scale", *lists)),
        ):
            yield Case(
                f"encode {precision}{what}",
                encode.encode_tiles,
                inputs
                | types(F="threshold bias scale list_values dense", L="length")
                | types(I="list_tokens list_latents hits per_token", i="n first last d", l="room"),
                {
                    "PRECISION": "tf32" if narrow else precision,
                    "ABSOLUTE": absolute,
                    "EVEN": even,
                    "GROUP": tile.group,
                    "TOKENS": tile.tokens,
                    "LATENTS": tile.latents,
                    "DEPTH": tile.depth,
                    "PARTS": tile.parts,
                },
                tile.warps,
                tile.stages,
                absent=absent,
            )
    yield Case(
        "largest of tokens",
        select.keep_largest,
        types(L="token_ptr", F="scores", T="keep", i="k"),
        {"BLOCK": select.BLOCK},
        4,
    )


def _token_cases() -> Iterator[Case]:
    for d in (512, 4096):
        constants, warps = _blocks(gather_blocks(d))
        yield Case(
            f"token pass gated d={d}",
            tokens.token_pass,
            types(F="x b_dec W_dec pull f a alpha beta G G_aux errors", L="token_ptr order")
            | types(I="latents", i="n d", f="twice"),
            constants,
            warps,
        )
        for prefixes in (1, 5, 64):
            yield Case(
                f"token pass of {prefixes} d={d}",
                codes.code_pass,
                types(F="y b_dec W_dec pull weights f beta G errors", L="ptr order")
                | types(I="latents", i="n e", f="twice"),
                constants | {"PREFIXES": prefixes},
                warps,
            )
        yield Case(
            f"products at list d={d}",
            tokens.products_at,
            types(F="x weight out", I="tokens latents", i="length d"),
            constants,
            warps,
        )
        yield Case(
            f"decode d={d}",
            tokens.decode_tokens,
            types(F="values W_dec b_dec out", L="token_ptr", I="latents", i="d"),
            constants,
            warps,
        )
    for columns in (1, 2, 3, 4):
        yield Case(
            f"latent sums of {columns}",
            tokens.sum_by_latent,
            types(F="columns out", L="latent_ptr", i="length n_latents"),
            {"COLUMNS": columns, "BLOCK_C": triton.next_power_of_2(columns), "BLOCK_Q": 32},
            1,
        )


def _latent_cases() -> Iterator[Case]:
    terms = types(F="weight rows weight2 rows2", I="tokens")
    one_term: tuple[str, ...] = ("weight2", "rows2", "radial", "block")
    chunks = ("chunk_ptr", "partial")
    for d in (512, 3072, 8192):
        constants, warps = _blocks(whole_row_blocks(d))
        for what, fused, unit_norm, absent in (
            ("gradient", False, False, (*one_term, *chunks, "v", "last_step")),
            ("Adam", True, False, (*one_term, *chunks, "out")),
            ("unit norm", True, True, (*one_term, *chunks, "out")),
            ("unit norm, chunks", True, True, (*one_term, "out")),
            ("unit norm, all terms", True, True, ("block", "out")),
            ("gradient, blocks", False, False, ("weight2", "rows2", "v", "last_step")),
        ):
            yield Case(
                f"latent pass {what} d={d}",
                latents.latent_rows,
                terms
                | types(F="radial partial W out v", L="latent_ptr chunk_ptr last_step", I="block", i="d")
                | ADAM,
                constants
                | {"FUSED": fused, "UNIT_NORM": unit_norm, "BLOCKS": 3, "CHUNK": latents.CHUNK}
                | {"SMALLEST_NORM": latents.SMALLEST_NORM},
                warps,
                absent=absent,
            )
        yield Case(
            f"latent chunks d={d}",
            latents.chunk_rows,
            terms | types(F="partial", L="begins ends", i="d"),
            constants,
            warps,
            absent=one_term[:2],
        )
        for what, absent in (("momentum", "last_step"), ("clipped", "m")):
            yield Case(
                f"walk {what} d={d}",
                walk.walk_rows,
                types(F="grads W m v", L="last_step", i="d", f="factor new keep unbiased") | ADAM,
                {
                    "UNIT_NORM": True,
                    "SMALLEST_NORM": walk.SMALLEST_NORM,
                    "BLOCK_D": constants["BLOCK_D"],
                },
                warps,
                absent=(absent,),
            )
    yield Case(
        "pull W^T s",
        vectors.pull_rows,
        types(F="s W partial", i="n_latents d"),
        {"ROWS": vectors.ROWS, "BLOCK_R": vectors.BLOCK_R, "BLOCK_D": vectors.WIDTH},
        4,
    )
    for which, absent in {"": (), " (all)": ("hits",)}.items():
        yield Case(
            f"Adam entries{which}",
            vectors.adam_entries,
            types(F="parameter grad v", L="last_step hits", i="length") | ADAM,
            {"BLOCK": vectors.BLOCK},
            4,
            absent=absent,
        )


def _blocks(launch: dict[str, int]) -> tuple[dict[str, int], int]:
    return {key: value for key, value in launch.items() if key != "num_warps"}, launch["num_warps"]


def compile_case(case: Case, architecture: int) -> dict[str, Any]:
    """Compile and return the kernel's resources."""
    names = case.kernel.arg_names
    constants = case.constants | dict.fromkeys(case.absent)
    missing = set(names) - set(case.types) - set(constants)
    unknown = (set(case.types) | set(constants)) - set(names)
    if missing or unknown:
        raise ValueError(f"{case.name}: arguments missing {sorted(missing)}, unknown {sorted(unknown)}")
    signature = {name: "constexpr" if name in constants else case.types[name] for name in names}
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(names)
        if signature[name][0] in "*i" and name not in ANY_ALIGNMENT
    }
    started = time.perf_counter()
    compiled = triton.compile(
        ASTSource(case.kernel, signature=signature, constexprs=constants, attrs=aligned),
        target=GPUTarget("cuda", architecture, 32),
        options={"num_warps": case.warps, "num_stages": case.stages},
    )
    registers, stack = _resources(compiled.asm["cubin"])
    return {
        "kernel": case.name,
        "function": case.kernel.__name__,
        "target": f"sm_{architecture}",
        "registers": registers,
        "stack_bytes": stack,
        "shared_bytes": compiled.metadata.shared,
        "warps": case.warps,
        "tensor_core_instructions": len(re.findall(r"wgmma\.mma_async|mma\.sync", compiled.asm["ptx"])),
        "seconds": round(time.perf_counter() - started, 2),
    }


def _resources(cubin: bytes) -> tuple[int, int]:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        out = subprocess.run(
            [tool, "--dump-resource-usage", path], capture_output=True, text=True, check=True
        ).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", out).groups()  # type: ignore[union-attr]
    return int(registers), int(stack)


def main() -> int:
    """Compile all, print a table; the number of kernels over the bound is the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", type=int, nargs="+", default=ARCHITECTURES, help="compute capabilities")
    parser.add_argument("--only", default="", metavar="REGEX", help="compile the kernels whose name matches")
    parser.add_argument("--json", type=Path, help="also write the table here")
    options = parser.parse_args()
    print(f"{'kernel':44} {'target':6} {'regs':>4} {'stack B':>7} {'shared B':>8} {'warps':>5} {'s':>5}")
    table, spilling = [], []
    for case in cases():
        if not re.search(options.only, case.name):
            continue
        for architecture in options.arch:
            row = compile_case(case, architecture)
            table.append(row)
            over = row["stack_bytes"] > STACK_BOUND
            spilling += [f"{row['kernel']} on {row['target']}"] * over
            print(
                f"{row['kernel']:44} {row['target']:6} {row['registers']:4} {row['stack_bytes']:7} "
                f"{row['shared_bytes']:8} {row['warps']:5} {row['seconds']:5}{'  SPILLS' if over else ''}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))
    if spilling:
        print(f"more than {STACK_BOUND} bytes of stack: {'; '.join(spilling)}", file=sys.stderr)
    return int(bool(spilling))


if __name__ == "__main__":
    sys.exit(main())
