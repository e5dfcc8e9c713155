"""From text and a model to activations: packing, harvesting, the on-disk store, shuffled streams."""

from interp.activations.estimate import HarvestEstimate, parse_tokens
from interp.activations.harvest import harvest
from interp.activations.store import ActivationStore
from interp.activations.stream import (
    ActivationBatch,
    ActivationSource,
    LiveStream,
    RowCounts,
    StoreStream,
    TensorStream,
)
from interp.activations.text import ContextBatch, Documents, DocumentStream, TokenContexts, load_text, pack

__all__ = [
    "ActivationBatch",
    "ActivationSource",
    "ActivationStore",
    "ContextBatch",
    "DocumentStream",
    "Documents",
    "HarvestEstimate",
    "LiveStream",
    "RowCounts",
    "StoreStream",
    "TensorStream",
    "TokenContexts",
    "harvest",
    "load_text",
    "pack",
    "parse_tokens",
]
