"""From a model and text to a store of activations."""

from __future__ import annotations

import errno
import logging
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.activations.batching import ContextRunner, resolve_batch_size
from interp.activations.document_stream import DocumentStream
from interp.activations.documents import Documents
from interp.activations.estimate import HarvestEstimate, parse_tokens, size_text
from interp.activations.manifest import MANIFEST_FILE, Manifest
from interp.activations.packing import ContextBatch, TokenContexts, pack
from interp.activations.row_format import EncodedRows, encode_rows
from interp.activations.store import ActivationStore
from interp.activations.text import load_text
from interp.activations.writer import ShardBuffer, ShardWriter
from interp.core.device import environment
from interp.core.distributed import barrier, from_main, init_from_env, rank, world_size
from interp.core.files import check_folder
from interp.core.lock import RunLock
from interp.core.progress import progress as progress_bar
from interp.models.language_model import require_language_model
from interp.models.sites import Site

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

logger = logging.getLogger(__name__)
_SAMPLE_CHARACTERS_PER_TOKEN = 8  # of the text that a dry run tokenises for one batch


def harvest(
    model: LanguageModel,
    text: str | Path | Iterable[Any] | TokenContexts | Tensor,
    sites: str | Site | Sequence[str | Site],
    out: str | Path,
    *,
    tokens: int | str | None = None,
    context_size: int = 128,
    batch_size: int | str = "auto",
    dtype: str | torch.dtype = "bfloat16",
    add_bos: bool | None = None,
    mode: str = "pad",
    isolate_documents: bool = True,
    shard_tokens: int = 65_536,
    resume: bool = True,
    dry_run: bool = False,
    progress: bool = True,
    seed: int = 0,
) -> ActivationStore | HarvestEstimate:
    """Run text through a model and store its activations at some sites.

    One forward pass serves all sites and ends after the deepest. The job may be killed at any moment: called
    again with the same arguments it goes on from the shards that are on disk (lost are at most the one being
    written and what was computed of the next), and the finished store is the same, byte for byte (on the same
    machine, with the same batch size). Under `torchrun`, where every rank calls this, each computes and
    writes its own shards; the number of ranks may change in between.

    Args:
        model: the model; load only the layers that are needed (`load_model(..., n_layers=...)`).
        text: anything `load_text` takes; or token ids [n s], or contexts that are packed already (the packing
            arguments, `tokens` and `seed` are then not looked at). It is read only until there are `tokens`, on
            rank 0 alone. To resume, the same documents must come again: a generator has to be made anew.
        sites: one or several sites.
        out: folder of the store.
        tokens: how many ("1M" and "300k" are understood); they are held in memory, 4 bytes each. None: all of a
            text that has an end; one that isn't known to (a generator, a streamed data set) needs a number.
        context_size, add_bos, mode, isolate_documents: as in `pack`.
        batch_size: full contexts in a forward pass; shorter ones go more to a batch. "auto" depends on the
            device; when memory runs out the batch is halved.
        dtype: "bfloat16", "float16", "float32" or "int8" (`row_format.py`).
        shard_tokens: rows in a shard, and so what a killed job loses at most. Two shards are in memory at a
            time: the peak does not depend on the number of tokens.
        resume: go on with an unfinished store; False: refuse a folder that holds one.
        dry_run: tokenise and run one batch, write nothing and return the estimate; of text the number of tokens
            is estimated too, from its characters.
        progress: show a bar.
        seed: order in which documents are taken.

    Raises:
        ValueError: an unknown site; no text; an unwritable folder; a store of something else in `out`
            (the differing fields are named), or another job that writes there; activations that are NaN or Inf.
        OSError: (ENOSPC) the disk lacks room; refused before the first batch where that can be foreseen.
    """
    require_language_model(model)
    chosen = [sites] if isinstance(sites, str | Site) else list(sites)
    places = list(dict.fromkeys(model.check_site(Site.parse(site)) for site in chosen))
    contexts = TokenContexts.from_ids(text) if isinstance(text, Tensor) else text
    packing: dict[str, Any] = {
        "context_size": context_size,
        "add_bos": add_bos,
        "mode": mode,
        "isolate_documents": isolate_documents,
    }
    wanted = parse_tokens(tokens)

    def job(contexts: TokenContexts) -> _Job:
        manifest = Manifest.plan(
            {str(site): model.width(site) for site in places},
            contexts.lengths,
            dtype=str(dtype),
            shard_tokens=shard_tokens,
            model=model.fingerprint(),
            contexts=contexts.identity(),
            environment=_versions(),
        )
        return _Job(model, contexts, places, manifest, Path(out), batch_size, shard_tokens)

    if dry_run:
        if isinstance(contexts, TokenContexts):
            planned = job(contexts)
            return planned.estimate(planned.first_batch_speed())
        batch_tokens = resolve_batch_size(batch_size, context_size, model.device) * context_size
        documents = load_text(contexts).shuffled(seed)
        sample = documents.head(_SAMPLE_CHARACTERS_PER_TOKEN * batch_tokens)
        planned = job(pack(sample, model, **packing))
        n_tokens = _tokens_in(documents, sample, planned.contexts.n_tokens, wanted)
        return planned.estimate(planned.first_batch_speed(), n_tokens)
    if not resume and Path(out).exists():
        raise ValueError(f"out={str(out)!r} is there already: resume=True goes on with it, or choose another")
    if not (Path(out) / MANIFEST_FILE).exists():
        check_folder("out", out)  # before the text is read
    init_from_env()
    if not isinstance(contexts, TokenContexts):
        contexts = pack(load_text(contexts), model, **packing, max_tokens=wanted, seed=seed, shared=True)
    job(contexts).run(progress)
    return ActivationStore.open(out)


def _tokens_in(
    documents: Documents | DocumentStream, sample: Documents, sample_tokens: int, wanted: int | None
) -> int:
    """About how many of the wanted tokens the documents hold, from the tokens of the first few of them."""
    if wanted is not None and isinstance(documents, DocumentStream):
        return wanted
    held = round(sample_tokens * documents.n_characters / sample.n_characters)
    return held if wanted is None else min(wanted, held)


def _versions() -> dict[str, Any]:
    facts = environment()
    return {"python": facts["python"], **facts["versions"]}


class _Job:
    def __init__(
        self,
        model: LanguageModel,
        contexts: TokenContexts,
        sites: Sequence[Site],
        manifest: Manifest,
        out: Path,
        batch_size: int | str,
        shard_tokens: int,
    ) -> None:
        self.contexts, self.manifest, self.out = contexts, manifest, out
        self.shard_tokens = shard_tokens
        self.runner = ContextRunner(model, contexts, sites, batch_size)
        self.pending = list(range(len(manifest.shards)))
        if world_size() > len(manifest.shards):
            logger.warning(
                "%d shards for %d ranks: some have nothing to do; lower shard_tokens",
                len(manifest.shards),
                world_size(),
            )

    def run(self, show_progress: bool) -> None:
        with ExitStack() as held:
            if next(from_main(self._begun(held))):
                self._write(ShardWriter(self.out, self.manifest), show_progress)
            else:
                logger.info("%s: nothing left to harvest", self.out)
            barrier()  # before rank 0 lets the folder go

    def _begun(self, held: ExitStack) -> Iterator[bool]:
        """Whether there is anything to do; the folder is then held, by rank 0 for all ranks of this job."""
        if (self.out / MANIFEST_FILE).exists() and ShardWriter(self.out, self.manifest).is_finished():
            yield False
        else:
            check_folder("out", self.out)
            held.enter_context(RunLock(self.out, "harvest"))
            yield True

    def _write(self, writer: ShardWriter, show_progress: bool) -> None:
        self.pending = writer.pending(rank(), world_size())
        if not self.pending:
            return
        self._require_room()
        remaining = sum(self.manifest.shards[index].n_rows for index in self.pending)
        # One thread writes a shard while the next is computed: never more than two of them in memory.
        with (
            progress_bar(
                total=remaining, desc="harvest", unit="tok", enabled="auto" if show_progress else False
            ) as bar,
            ThreadPoolExecutor(1, thread_name_prefix="shard-writer") as thread,
        ):
            writing: Future[None] | None = None
            for number, index in enumerate(self.pending):
                buffer = self._fill(writer, index, bar, announce=number == 0)
                if writing is not None:
                    writing.result()
                writing = thread.submit(writer.commit, buffer)
            if writing is not None:
                writing.result()

    def _fill(self, writer: ShardWriter, index: int, bar: Any, *, announce: bool) -> ShardBuffer:
        plan = self.manifest.shards[index]
        indices = np.arange(plan.first_context, plan.first_context + plan.n_contexts)
        buffer = writer.begin(index, self.contexts.rows(plan.first_context, int(indices[-1]) + 1))
        first_rows = np.cumsum(self.contexts.lengths[indices]) - self.contexts.lengths[indices]
        started = time.perf_counter()
        waiting: _Rows | None = None
        for batch, activations in self.runner.run(indices):
            rows = _select(batch, first_rows[batch.context_ids.numpy() - plan.first_context])
            ready = _Rows(rows, activations, batch, self.manifest.dtype)
            if announce:
                ready.wait()
                announce = False
                speed = len(rows) / (time.perf_counter() - started)
                logger.info("harvest: %s", self.estimate(speed))
            # One batch behind, so that a GPU computes the next while this one is copied and filed away.
            if waiting is not None:
                waiting.store(buffer)
            waiting = ready
            bar.update(len(rows))
        if waiting is not None:
            waiting.store(buffer)
        return buffer

    def first_batch_speed(self) -> float:
        """Tokens a second in the first batch."""
        plan = self.manifest.shards[0]
        indices = np.arange(plan.first_context, plan.first_context + plan.n_contexts)
        started = time.perf_counter()
        batch, activations = next(iter(self.runner.run(indices)))
        _Rows(torch.arange(batch.n_tokens), activations, batch, self.manifest.dtype).wait()
        return batch.n_tokens / (time.perf_counter() - started)

    def estimate(self, tokens_per_second: float, n_tokens: int | None = None) -> HarvestEstimate:
        """For what is pending; or for `n_tokens` tokens of which these contexts are a sample."""
        n_bytes = self._pending_bytes()
        shard_bytes = max(self.manifest.shard_bytes(index) for index in self.pending)
        if n_tokens is not None:
            n_bytes = n_tokens * self.manifest.row_bytes
            shard_bytes = min(n_tokens, self.shard_tokens) * self.manifest.row_bytes
        return HarvestEstimate(
            n_tokens=n_tokens or sum(self.manifest.shards[index].n_rows for index in self.pending),
            n_bytes=n_bytes,
            free_bytes=self._free_bytes(),
            memory_bytes=2 * shard_bytes,
            tokens_per_second=tokens_per_second,
        )

    def _pending_bytes(self) -> int:
        return sum(self.manifest.shard_bytes(index) for index in self.pending)

    def _free_bytes(self) -> int:
        folder = self.out.absolute()
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def _require_room(self) -> None:
        needed, free = self._pending_bytes() * world_size(), self._free_bytes()
        if needed > free:
            raise OSError(
                errno.ENOSPC,
                f"the harvest needs {size_text(needed)} and the disk has {size_text(free)}: make room, "
                "ask for fewer tokens or sites, or store int8",
                str(self.out),
            )


def _select(batch: ContextBatch, first_rows: np.ndarray) -> Tensor:
    """For each real token of a batch, in order, its row in the shard."""
    column = torch.arange(batch.input_ids.shape[1])
    return (torch.from_numpy(first_rows)[:, None] + column)[batch.attention_mask.bool()]


class _Rows:
    """The real tokens' activations of one batch, encoded, on their way to the host."""

    def __init__(
        self, rows: Tensor, activations: dict[Site, Tensor], batch: ContextBatch, dtype: str
    ) -> None:
        self.rows = rows
        flat = batch.attention_mask.flatten().nonzero()[:, 0]
        self.encoded: dict[str, EncodedRows] = {}
        self._copies: list[torch.cuda.Event] = []
        for site, values in activations.items():
            where = flat.to(values.device, non_blocking=True)
            encoded = encode_rows(values.flatten(0, 1).index_select(0, where), dtype)
            self.encoded[str(site)] = _to_host(encoded)
            if values.device.type == "cuda":
                self._copies.append(torch.cuda.current_stream(values.device).record_event())

    def wait(self) -> None:
        for copy in self._copies:
            copy.synchronize()

    def store(self, buffer: ShardBuffer) -> None:
        self.wait()
        for site, encoded in self.encoded.items():
            buffer.put(site, self.rows, encoded)


def _to_host(encoded: EncodedRows) -> EncodedRows:
    if encoded.values.device.type != "cuda":
        return encoded
    host = {}
    for field in fields(encoded):
        tensor = getattr(encoded, field.name)
        if tensor is not None:
            pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            tensor = pinned.copy_(tensor, non_blocking=True)
        host[field.name] = tensor
    return EncodedRows(**host)
