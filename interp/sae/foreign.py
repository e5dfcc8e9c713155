"""What an architecture says of itself in other libraries' formats: as which of their kinds, under which names.

An architecture's `foreign` holds it, format by format::

    foreign = {"saelens": (ForeignForm("topk", {"W_enc*": "W_enc", ...}, values=(ForeignValue("k", "k"),)),)}

`interp.sae.formats` reads and writes by it and knows no architecture itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

CENTRED = "apply_b_dec_to_input"  # the field that a dictionary can change without becoming another function


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class ForeignValue:
    """Something besides the weights that both sides hold, and where.

    Attributes:
        ours: a field of the dictionary's config; ``"loss.<name>"`` for `SAEMetadata.loss`; else what
            ``set_<ours>_`` of the dictionary takes and its attribute gives. None: nothing here needs it, and it is
            kept to be written again.
        theirs: a key of their configuration or, with a `dtype`, the name of a tensor.
        dtype: of that tensor, of no or one dimension.
        required: whether reading fails without it.
        default: what is written where we have no such value; None: nothing.
        to_ours, to_theirs: conversions of plain values; ValueError where one means nothing on the other side.
    """

    ours: str | None
    theirs: str
    dtype: torch.dtype | None = None
    required: bool = True
    default: Any = None
    to_ours: Callable[[Any], Any] = _same
    to_theirs: Callable[[Any], Any] = _same


@dataclass(frozen=True)
class ForeignForm:
    """One kind of dictionary in a format, as which an architecture is read and written.

    Attributes:
        kind: the format's name of it.
        tensors: our parameter -> their tensor; a star marks a matrix that they store transposed. A vector that a
            dictionary does without is written as zeros.
        fixed: fields of the config that the kind implies. A dictionary that differs in `apply_b_dec_to_input`
            alone is brought to it, exactly, by a shift of its biases.
        values: what else both sides hold.
        when: a further condition on the config of what can be written so.
        written: False for a kind that is only read.
    """

    kind: str
    tensors: Mapping[str, str]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    values: tuple[ForeignValue, ...] = ()
    when: Callable[[Any], bool] | None = None
    written: bool = True

    def holds(self, cfg: Any) -> bool:
        """Whether a dictionary of this config can be written as this kind, but for its centring."""
        implied = all(getattr(cfg, name) == value for name, value in self.fixed.items() if name != CENTRED)
        return self.written and implied and (self.when is None or self.when(cfg))


Foreign = Mapping[str, tuple[ForeignForm, ...]]
