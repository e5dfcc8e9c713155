"""Options of a training as text: read from `name=value`, taken out of a run's configuration, listed and explained."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from interp.core.config import load_config
from interp.core.messages import nearest
from interp.sae.config import FROM_DATA, RUN_FIELDS, RunConfig, SAETrainConfig, configure, option_groups


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """``["l1_coefficient=2", "form.d_sae=4096", "run.steps=50"]`` as a mapping; values are read as YAML does.

    A group before the name is checked against the architecture's, where there is one.

    Raises ValueError for what isn't `name=value`, or names a field of another group.
    """
    import yaml

    found: dict[str, Any] = {}
    groups: dict[str, str] = {}
    for setting in settings:
        match = re.fullmatch(r"\s*(?:(\w+)\.)?(\w+)\s*=(.*)", setting, flags=re.DOTALL)
        if match is None:
            raise ValueError(
                f"--set {setting!r}: write name=value or group.name=value, e.g. loss.l1_coefficient=2"
            )
        group, name, text = match.groups()
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"--set {setting!r}: {text!r} is no value that YAML knows") from error
        found[name] = float(value) if isinstance(value, str) and _is_number(value) else value
        if group is not None:
            groups[name] = group
    named = {"run": RunConfig, **option_groups(found.get("architecture", "gated"))} if groups else {}
    for name, group in groups.items():
        if group not in named:
            raise ValueError(f"--set {group}.{name}: no such group; {nearest(group, named)}")
        known = [f.name for f in dataclasses.fields(named[group]) if f.name not in FROM_DATA]
        if name not in known:
            raise ValueError(f"--set {group}.{name}: {group} has no such field; {nearest(name, known)}")
    return found


def _is_number(text: str) -> bool:
    """What YAML 1.1 takes for a string although it is a number: ``1e-3``."""
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+", text) is not None


def read_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options of a run, flat, from its ``config.yaml``: what `train` takes.

    Raises ValueError naming the file.
    """
    from interp.sae.training import SAERunConfig

    config = load_config(path, SAERunConfig)
    return {**flat(config.sae), **{name: getattr(config.run, name) for name in RUN_FIELDS}}


def flat(config: SAETrainConfig) -> dict[str, Any]:
    """A dictionary's configuration as a flat mapping, for `configure`."""
    values: dict[str, Any] = {"architecture": config.architecture, **config.form}
    for group in option_groups(config.architecture):
        if group != "form":
            options = getattr(config, group)
            values |= {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    return values


def list_options(architecture: str) -> str:
    """Every option of an architecture's training: name, value by its recipe, what it means."""
    chosen = flat(configure({"architecture": architecture}))
    lines = [f"options of a {architecture} SAE, with what its recipe says (interp train --set name=value)"]
    for group, kind in {**option_groups(architecture), "run": RunConfig}.items():
        lines.append(f"\n{group}:")
        meaning = _meanings(kind)
        for field in dataclasses.fields(kind):
            if field.name not in FROM_DATA:
                value = chosen.get(field.name, field.default)
                lines.append(f"  {field.name} = {value!r}\n      {meaning.get(field.name, '')}".rstrip())
    return "\n".join(lines)


def _meanings(kind: type[Any]) -> Mapping[str, str]:
    """What the docstrings of a dataclass and its bases say of each field."""
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        text = inspect.cleandoc(cls.__doc__ or "")
        _, _, attributes = text.partition("Attributes:")
        for names, about in re.findall(
            r"^    ([\w, ]+): (.*(?:\n        .*)*)", attributes, flags=re.MULTILINE
        ):
            for name in names.split(","):
                found[name.strip()] = " ".join(about.split())
    return found
