"""Problems for the Triton kernels: small (the interpreter is slow), float32, with float64 twins as the truth."""

from __future__ import annotations

import torch
from torch import Tensor

from interp.sae.kernels.lists import CodeParams, GatedParams
from interp.sae.kernels.triton.encode import encode_tiles
from tests.sae.kernels.cases import gated_params, standard_params

if not type(encode_tiles).__name__.startswith("Interpreted"):
    raise RuntimeError("triton was imported before tests/__init__.py set TRITON_INTERPRET=1")


def gated(d: int, F: int, *, shift: float = -1.0, tied: bool = True, r_mag: bool = True) -> GatedParams:
    """Float32 parameters with W_gate scaled so that pre-activations are of order one."""
    params = gated_params(d, F, tied=tied, r_mag=r_mag, shift=shift, dtype=torch.float32)
    with torch.no_grad():
        for weight in (params.W_gate, params.W_mag):
            if weight is not None:
                weight.div_(d**0.5)
        params.W_dec.div_(params.W_dec.norm(dim=1, keepdim=True))
    return params


def standard(d: int, F: int, *, shift: float = -1.0) -> CodeParams:
    """As :func:`gated`."""
    params = standard_params(d, F, shift=shift, dtype=torch.float32)
    with torch.no_grad():
        params.W_enc.div_(d**0.5)
        params.W_dec.div_(params.W_dec.norm(dim=1, keepdim=True))
    return params


def exact(params: GatedParams | CodeParams) -> GatedParams | CodeParams:
    """The same numbers in float64."""
    return type(params)(*(None if p is None else p.detach().double().requires_grad_() for p in params))


def present(tensors: GatedParams | CodeParams) -> list[Tensor]:
    """The tensors that exist."""
    return [t for t in tensors if t is not None]
