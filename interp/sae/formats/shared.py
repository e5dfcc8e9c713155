"""What reading and writing other libraries' files has in common.

Shapes are held to the config's d_in and d_sae: a matrix that only fits transposed is refused, never turned.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.core.config import from_dict, to_dict
from interp.core.device import dtype_name
from interp.core.files import read_sealed_json, sha256_file, write_sealed_json
from interp.core.tensor_files import check_finite
from interp.sae.dictionary import Dictionary
from interp.sae.foreign import CENTRED, ForeignForm, ForeignValue
from interp.sae.metadata import SAEMetadata
from interp.sae.registry import architecture, architectures
from interp.sae.saving import fill, fold_if_needed

CHECKSUMS = "sha256.json"
# What most formats have no words for, and what we then write under names of our own.
OURS = ("model_fingerprint", "skip_positions", "special_tokens_excluded", "max_norm", "context_size")
_LONGEST_VALUE = 2**16


@dataclass(frozen=True)
class Format:
    """How another library keeps a dictionary.

    Attributes:
        name: as `Dictionary.foreign` and ``interp export --to`` have it.
        looked_for: what in a folder tells that it is this format, for a message.
        holds: whether a folder is of this format.
        load: ``load(folder, device=..., activation_scale=...)``.
        save: ``save(sae, folder)``.
    """

    name: str
    looked_for: str
    holds: Callable[[Path], bool]
    load: Callable[..., Dictionary]
    save: Callable[[Dictionary, str | os.PathLike[str]], Path]


def kinds(format: str) -> dict[str, tuple[type[Dictionary], ForeignForm]]:
    """The kinds of dictionary in a format that an architecture says it is."""
    known: dict[str, tuple[type[Dictionary], ForeignForm]] = {}
    for name in architectures():
        for form in architecture(name).foreign_forms(format):
            if form.kind in known:
                other = known[form.kind][0].architecture
                raise ValueError(f"foreign: both {other} and {name} say they are {format}'s {form.kind!r}")
            known[form.kind] = (architecture(name), form)
    return known


def exportable(sae: Dictionary, format: str) -> tuple[Dictionary, ForeignForm]:
    """A copy on the CPU that takes raw activations and is one of the format's kinds, and which.

    Raises ValueError where the format has no words for it.
    """
    name, sites = sae.architecture, sae.sites
    sae = copy.deepcopy(sae).cpu()
    fold_if_needed(sae)
    try:
        sae = sae.as_foreign(format)
        forms = [form for form in sae.foreign_forms(format) if form.holds(sae.cfg)]
        if not forms:
            raise ValueError(f"its {sae.architecture} form isn't there either")
        if sae.sites != sites:
            raise ValueError(f"a {sae.architecture} dictionary there is of another number of sites")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"this {name} SAE can't be written as {format} ({error}); that has {', '.join(sorted(kinds(format)))}"
        ) from error
    centred = sae.cfg.apply_b_dec_to_input
    form = next((form for form in forms if form.fixed.get(CENTRED, centred) == centred), forms[0])
    sae.set_centring_(form.fixed.get(CENTRED, centred))
    return sae, form


def to_theirs(sae: Dictionary, form: ForeignForm, format: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A dictionary's tensors under their names and in their orientation, and what belongs into their configuration."""
    tensors: dict[str, Tensor] = {}
    settings: dict[str, Any] = {}
    for ours, theirs in form.tensors.items():
        tensor = getattr(sae, ours.rstrip("*"))
        if tensor is None:
            tensor = sae.b_dec.new_zeros(sae.cfg.d_sae)
        tensor = tensor.detach()
        turned = tensor.T if ours.endswith("*") else tensor
        tensors[theirs] = turned.clone(memory_format=torch.contiguous_format)
    for value in form.values:
        said = _said(sae, value, format)
        if said is None:
            continue
        if value.dtype is not None:
            tensors[value.theirs] = torch.tensor(said, dtype=value.dtype)
        else:
            settings[value.theirs] = said
    return tensors, settings


def _said(sae: Dictionary, value: ForeignValue, format: str) -> Any:
    if value.ours is None:
        return sae.metadata.extra.get(format, {}).get(value.theirs, value.default)
    if value.ours.startswith("loss."):
        found = sae.metadata.loss.get(value.ours.removeprefix("loss."))
    else:
        found = getattr(sae.cfg, value.ours) if hasattr(sae.cfg, value.ours) else getattr(sae, value.ours)
    return value.default if found is None or found == () else value.to_theirs(found)


def from_theirs(
    format: str,
    kind: Any,
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    *,
    size_keys: tuple[str, str],
    centred: bool | None = None,
    config_file: Path,
    weights_file: Path,
    device: torch.device | str,
) -> Dictionary:
    """The dictionary that a folder of theirs describes, its metadata holding no more than the form's values.

    Args:
        kind: theirs, one of `kinds`.
        tensors: all of the weights' file.
        settings: their configuration.
        size_keys: what they call d_in and d_sae there; where they are left out, shapes decide.
        centred: whether the input is centred, where the kind doesn't fix it.
        config_file, weights_file: to be named in errors.

    Raises ValueError where anything is missing, unknown, of another type, or contradicts the rest.
    """
    cls, form = kinds(format)[kind]
    of_tensors = {value.theirs: value for value in form.values if value.dtype is not None}
    weights = {name: tensor for name, tensor in tensors.items() if name not in of_tensors}
    check_names(weights, list(form.tensors.values()), weights_file)
    encoder = cls.encoder_matrices[0]
    encoder_tensor = weights[form.tensors.get(encoder) or form.tensors[f"{encoder}*"]]
    d_in, d_sae = (settings.get(key) for key in size_keys)
    d_in, d_sae = sizes(d_in, d_sae, encoder_tensor, encoder in form.tensors, weights_file)

    found = _values(form, tensors, settings, config_file, weights_file)
    fields = {name: value for name, value in form.fixed.items() if name != CENTRED}
    known = {field.name for field in dataclasses.fields(cls.config_class)}
    fields.update({name: value for name, value in found.items() if name in known})
    centring = form.fixed.get(CENTRED, centred)
    if centring is not None:
        fields[CENTRED] = centring
    fields.update(d_in=d_in, d_sae=d_sae, dtype=dtype_name(encoder_tensor.dtype))
    try:
        cfg = from_dict(cls.config_class, fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{config_file}: {error}") from error

    ours = {}
    for own, theirs in form.tensors.items():
        tensor = weights[theirs]
        if own.endswith("*") and tensor.dim() != 2:
            raise ValueError(
                f"{weights_file}: {theirs} has shape {tuple(tensor.shape)}; it should be a matrix"
            )
        ours[own.rstrip("*")] = tensor.T if own.endswith("*") else tensor

    def make(at: torch.device | str) -> Dictionary:
        return cls(cfg, seed=None, device=at)  # type: ignore[call-arg, no-any-return]

    for name, buffer in make("meta").named_buffers():
        ours[name] = torch.zeros((), dtype=buffer.dtype).expand(buffer.shape)  # until a value sets it
    sae = fill(make, ours, weights_file, device)
    for name, value in found.items():
        if name not in known and "." not in name:
            try:
                getattr(sae, f"set_{name}_")(value)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{weights_file}: {error}") from error
    kept = _kept(form, tensors, settings, weights_file)
    losses = {name.removeprefix("loss."): value for name, value in found.items() if name.startswith("loss.")}
    sae.metadata = SAEMetadata(loss=losses, extra={format: kept} if kept else {})
    return sae


def _values(
    form: ForeignForm,
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    config_file: Path,
    weights_file: Path,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for value in form.values:
        source = config_file if value.dtype is None else weights_file
        there: Mapping[str, Any] = settings if value.dtype is None else tensors
        if value.ours is None:
            continue
        if there.get(value.theirs) is None:
            if value.required:
                raise ValueError(f"{source} has no {value.theirs!r}, which a {form.kind} dictionary needs")
            continue
        said = there[value.theirs]
        try:
            plain = said if value.dtype is None else _plain(said, value)
            ours = value.to_ours(plain)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"{source}: {value.theirs} can't be used ({error})") from error
        if value.ours in found and found[value.ours] != ours:
            raise ValueError(
                f"{source}: {value.theirs} = {ours!r}, but {found[value.ours]!r} in {config_file.name}: one is "
                "of another run"
            )
        found[value.ours] = ours
    return found


def _kept(
    form: ForeignForm, tensors: Mapping[str, Tensor], settings: Mapping[str, Any], source: Path
) -> dict[str, Any]:
    kept = {}
    for value in form.values:
        if value.ours is None and value.theirs in (settings if value.dtype is None else tensors):
            try:
                said = settings[value.theirs] if value.dtype is None else _plain(tensors[value.theirs], value)
            except ValueError as error:
                raise ValueError(f"{source}: {value.theirs} can't be used ({error})") from error
            kept[value.theirs] = said
    return kept


def _plain(tensor: Tensor, value: ForeignValue) -> Any:
    """A number, or a list of them, of a tensor that holds a setting."""
    assert value.dtype is not None
    if tensor.is_floating_point() != value.dtype.is_floating_point or tensor.is_complex() or tensor.dim() > 1:
        raise ValueError(f"it is {dtype_name(tensor.dtype)} of shape {tuple(tensor.shape)}")
    if tensor.numel() > _LONGEST_VALUE or not bool(torch.isfinite(tensor).all()):
        raise ValueError("it isn't finite, or is far too long")
    return tensor.tolist()


def save_checksums(folder: Path, *names: str) -> None:
    """Write ``sha256.json``, the checksums of the files that were just exported."""
    write_sealed_json(folder / CHECKSUMS, {"sha256": {name: sha256_file(folder / name) for name in names}})


def check_checksums(folder: Path, *names: str) -> None:
    """Raise ValueError where a file is not the one that was exported; the other library's folders have no checksums."""
    path = folder / CHECKSUMS
    if not path.exists():
        return
    known = read_sealed_json(path, ("sha256",))
    for name in names:
        if known["sha256"].get(name) != sha256_file(folder / name):
            raise ValueError(
                f"{folder / name} was damaged or changed after it was exported (its SHA-256 is not the one in "
                f"{CHECKSUMS}): copy it again, or remove {CHECKSUMS} to read it as it stands"
            )


def check_names(tensors: Mapping[str, Tensor], names: list[str], source: Path) -> None:
    """Raise ValueError naming missing and unknown tensors, and those that aren't finite real numbers."""
    lacking = [name for name in names if name not in tensors]
    foreign = [key for key in tensors if key not in names]
    if lacking or foreign:
        raise ValueError(
            f"{source}: expected the tensors {', '.join(names)}; missing: "
            f"{', '.join(lacking) or 'none'}, unknown: {', '.join(foreign) or 'none'}"
        )
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ValueError(
                f"{source}: tensor {name!r} is {dtype_name(tensor.dtype)}, not of floating point; copy it again"
            )
        check_finite(tensor, name, source)


def sizes(d_in: Any, d_sae: Any, encoder: Tensor, row_per_latent: bool, source: Path) -> tuple[int, int]:
    """(d_in, d_sae) of the config, or of the encoder's shape where that leaves no doubt."""
    if encoder.dim() != 2:
        raise ValueError(f"{source}: the encoder has shape {tuple(encoder.shape)}; it should be a matrix")
    if d_in is not None and d_sae is not None:
        if type(d_in) is not int or type(d_sae) is not int:
            raise ValueError(
                f"{source}: its config gives the sizes d_in = {d_in!r}, d_sae = {d_sae!r}: not integers"
            )
        return d_in, d_sae
    rows, columns = encoder.shape
    if rows == columns:
        raise ValueError(
            f"{source}: the encoder is {rows} x {columns} and the config gives no d_in and d_sae: nothing "
            "tells which side is which; add them to the config"
        )
    return (columns, rows) if row_per_latent else (rows, columns)


def say(sae: Dictionary, source: Path, **fields: Any) -> None:
    """Add to a dictionary's metadata what a configuration says of the training; ``extra`` is added to what is there.

    Raises ValueError naming the file where a value is of another kind.
    """
    extra = {**fields.pop("extra", {}), **sae.metadata.extra}
    try:
        said = from_dict(SAEMetadata, {"loss": sae.metadata.loss, "extra": extra, **fields})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{source}: {error}") from error
    sae.metadata = replace(said)


def ours_of(known: SAEMetadata) -> dict[str, Any]:
    """What other formats have no words for."""
    return {name: value for name, value in to_dict(known).items() if name in OURS}


def mapping(value: Any, what: str, source: Path) -> dict[str, Any]:
    """The value itself. Raises ValueError unless it is a mapping."""
    if not isinstance(value, dict):
        raise ValueError(f"{source}: {what} is a {type(value).__name__}, not a mapping; copy it again")
    return value


def no_scale(activation_scale: float | None, folder: Path) -> None:
    """Raise ValueError where a scale is given for a folder whose dictionary takes activations as they are."""
    if activation_scale is not None:
        raise ValueError(
            f"activation_scale = {activation_scale}: {folder} was trained on activations as they are"
        )
