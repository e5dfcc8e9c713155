"""Triton kernels of the sparse step, for NVIDIA GPUs; a backend as :class:`interp.sae.kernels.backend.Backend`.

K1 :mod:`.encode` (encode, gate, compact), :mod:`.select` (k largest) - K2 :mod:`.tokens`, :mod:`.codes` (token pass)
- K3 :mod:`.latents` (latent pass with Adam) - K4 :mod:`.vectors` (``W^T s`` for the decoder bias) - :mod:`.walk` (Adam
with momentum or clipping) - :mod:`.step` puts them together.
"""

from __future__ import annotations

from interp.sae.kernels.triton.codes import code_token_pass
from interp.sae.kernels.triton.encode import compact
from interp.sae.kernels.triton.select import listed
from interp.sae.kernels.triton.step import code_latent_pass, gated_latent_pass, gradients, update
from interp.sae.kernels.triton.tokens import decode, gated_token_pass

__all__ = [
    "code_latent_pass",
    "code_token_pass",
    "compact",
    "decode",
    "gated_latent_pass",
    "gated_token_pass",
    "gradients",
    "listed",
    "update",
]
