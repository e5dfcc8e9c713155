"""Names of places in a transformer.

A `Site` is what users write (`"resid_post.15"`), what stores keep in their manifest and what hooks resolve.
The names are TransformerLens' vocabulary; where each of them lives in a given architecture is the business of
`families.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from interp.core.messages import nearest

IO = Literal["in", "out"]

# Within a block, in the order in which a forward pass reaches them.
BLOCK_SITES = ("resid_pre", "attn_z", "attn_out", "resid_mid", "mlp_post", "mlp_out", "resid_post")
MODEL_SITES = ("embed", "final_norm")
SITE_NAMES = (*BLOCK_SITES, *MODEL_SITES)

# Spellings of TransformerLens (legacy and bridge) that name one of ours.
_ALIASES = {
    "hook_resid_pre": "resid_pre",
    "hook_in": "resid_pre",
    "hook_resid_mid": "resid_mid",
    "hook_resid_post": "resid_post",
    "hook_out": "resid_post",
    "hook_attn_out": "attn_out",
    "attn.hook_z": "attn_z",
    "attn.o.hook_in": "attn_z",
    "z": "attn_z",
    "hook_mlp_out": "mlp_out",
    "mlp.hook_post": "mlp_post",
    "mlp.out.hook_in": "mlp_post",
    "hook_embed": "embed",
    "embed.hook_out": "embed",
    "ln_final.hook_out": "final_norm",
}
_NAMED = re.compile(r"(?P<name>[a-z_]+)(\.(?P<layer>-?\d+))?")
_LAYER_FIRST = re.compile(r"(blocks|layers|h)\.(?P<layer>\d+)\.(?P<name>[a-z_.]+)")


@dataclass(frozen=True)
class Site:
    """A place in the model: a name of `SITE_NAMES` with its layer, or (with `io`) the path of any module.

    `str(site)` is the canonical spelling and `Site.parse(str(site)) == site`.
    """

    name: str
    layer: int | None = None
    io: IO | None = None

    def __post_init__(self) -> None:
        if self.io is not None:
            if self.io not in ("in", "out"):
                raise ValueError(f"io={self.io!r} of module {self.name!r}: write 'in' or 'out'")
            if self.layer is not None:
                raise ValueError(f"a module path has no layer of its own, got layer={self.layer!r}")
            return
        if self.name not in SITE_NAMES:
            raise ValueError(_unknown(self.name))
        if (self.layer is None) == (self.name in BLOCK_SITES):
            example = self.name if self.name in MODEL_SITES else f"{self.name}.0"
            raise ValueError(f"site {self.name!r} with layer={self.layer!r}: write it as {example!r}")
        if self.layer is not None and (isinstance(self.layer, bool) or not isinstance(self.layer, int)):
            raise TypeError(f"layer={self.layer!r} of site {self.name!r} is not an integer")

    @classmethod
    def module(cls, path: str, io: IO = "out") -> Site:
        """The input or output of the module at `path` (as `named_modules()` spells it)."""
        if not path:
            raise ValueError("path='' of Site.module: name a module, e.g. 'model.layers.3.mlp'")
        return cls(path, None, io)

    @classmethod
    def parse(cls, text: str | Site) -> Site:
        """Read a site.

        Accepts our spelling (`resid_post.15`, `embed`), TransformerLens' (`blocks.15.hook_resid_post`), layer
        first (`layers.15.resid_post`) and a module path with its side (`model.layers.3.mlp:in`).

        Raises:
            TypeError: not a string or a Site.
            ValueError: no such site; the message lists the names and the nearest.
        """
        if isinstance(text, Site):
            return text
        if not isinstance(text, str):
            raise TypeError(f"site={text!r} is a {type(text).__name__}; give a string or a Site")
        spelled = text.strip()
        if ":" in spelled:
            path, _, side = spelled.rpartition(":")
            if side not in ("in", "out"):
                raise ValueError(f"site {text!r}: a module path ends in ':in' or ':out', not {':' + side!r}")
            return cls.module(path, "in" if side == "in" else "out")
        spelled = _ALIASES.get(spelled, spelled)
        if match := _LAYER_FIRST.fullmatch(spelled):
            name = _ALIASES.get(match["name"], match["name"])
            if name in BLOCK_SITES:
                return cls(name, int(match["layer"]))
            raise ValueError(_unknown(match["name"], whole=text))
        match = _NAMED.fullmatch(spelled)
        if match is None:
            raise ValueError(_unknown(spelled, whole=text))
        return cls(match["name"], None if match["layer"] is None else int(match["layer"]))

    @property
    def is_module(self) -> bool:
        return self.io is not None

    def __str__(self) -> str:
        if self.io is not None:
            return f"{self.name}:{self.io}"
        return self.name if self.layer is None else f"{self.name}.{self.layer}"


def is_site(text: str) -> bool:
    """Whether a string names a site, in a spelling that `Site.parse` reads."""
    try:
        Site.parse(text)
    except ValueError:
        return False
    return True


def _unknown(name: str, whole: str | None = None) -> str:
    shown = name if whole is None else whole
    return (
        f"unknown site {shown!r}: {nearest(name, SITE_NAMES)}. Sites of a block are written 'resid_post.15'; "
        "any module works as 'path.of.module:out' or ':in'"
    )
