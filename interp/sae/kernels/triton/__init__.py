"""Triton kernels of the sparse step, for NVIDIA GPUs; a backend as :class:`interp.sae.kernels.backend.Backend`.

K1 :mod:`.encode` (encode, gate, compact) - K2 :mod:`.tokens` (token pass) - K3 :mod:`.latents` (latent pass with
Adam) - K4 :mod:`.vectors` (``W^T s`` for the decoder bias) - :mod:`.step` puts them together.
"""

from __future__ import annotations

from interp.sae.kernels.triton.encode import compact
from interp.sae.kernels.triton.step import (
    gated_latent_pass,
    gradients,
    standard_latent_pass,
    update,
)
from interp.sae.kernels.triton.tokens import decode, gated_token_pass, standard_token_pass

__all__ = [
    "compact",
    "decode",
    "gated_latent_pass",
    "gated_token_pass",
    "gradients",
    "standard_latent_pass",
    "standard_token_pass",
    "update",
]
