"""The plain engine: forward hooks on a transformers model."""

from __future__ import annotations

from typing import Any

from torch import nn

from interp.core.messages import nearest
from interp.models.families import FAMILY_NAMES, family_of
from interp.models.hooks import Point
from interp.models.language_model import LanguageModel
from interp.models.sites import Site


class HuggingFaceModel(LanguageModel):
    """A transformers causal language model, used where it stands and never changed.

    An architecture outside the family table keeps everything but the named sites: module paths work on any
    module.
    """

    engine = "huggingface"
    weight_processing = "none"

    def __init__(
        self, module: nn.Module, *, name: str, tokenizer: Any = None, truncated_from: int | None = None
    ) -> None:
        config = getattr(module, "config", None)
        super().__init__(
            module, name=name, tokenizer=tokenizer, family=family_of(config), truncated_from=truncated_from
        )

    @property
    def backbone(self) -> nn.Module:
        return getattr(self.module, "base_model", self.module)

    def _named_sites(self) -> tuple[str, ...]:
        return () if self._family is None else tuple(self._family.taps)

    def _why_absent(self, name: str) -> str:
        if self._family is None:
            return f"the named sites are known for {', '.join(FAMILY_NAMES)} only"
        return self._family.absent[name]

    def _points_of(self, site: Site) -> Point:
        if site.io is not None:
            return Point(self._module_at(site.name), site.io)
        tap = self._known_family.taps[site.name].at(site.layer)
        return Point(self._module_at(tap.path), tap.io, in_place=site.name == "resid_mid")

    def _module_at(self, path: str) -> nn.Module:
        if self._family is not None and self.backbone is self.module:
            path = path.removeprefix(f"{self._family.backbone}.")
        try:
            return self.module.get_submodule(path)
        except AttributeError:
            paths = [p for p, _ in self.module.named_modules() if p]
            raise ValueError(f"{self.name} has no module {path!r}; {nearest_path(path, paths)}") from None


def nearest_path(path: str, paths: list[str]) -> str:
    depth = path.count(".")
    alike = [p for p in paths if p.count(".") == depth] or paths
    return nearest(path, alike[:60])
