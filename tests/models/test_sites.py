from __future__ import annotations

import pytest

from interp.models.sites import SITE_NAMES, Site


@pytest.mark.parametrize(
    ("text", "site"),
    [
        ("resid_post.15", Site("resid_post", 15)),
        ("blocks.15.hook_resid_post", Site("resid_post", 15)),
        ("blocks.15.hook_out", Site("resid_post", 15)),
        ("layers.15.resid_post", Site("resid_post", 15)),
        ("h.2.attn_out", Site("attn_out", 2)),
        ("blocks.2.attn.hook_z", Site("attn_z", 2)),
        ("blocks.2.mlp.hook_post", Site("mlp_post", 2)),
        ("blocks.0.hook_resid_mid", Site("resid_mid", 0)),
        ("resid_post.-1", Site("resid_post", -1)),
        ("embed", Site("embed")),
        ("hook_embed", Site("embed")),
        ("ln_final.hook_out", Site("final_norm")),
        ("model.layers.3.mlp:in", Site.module("model.layers.3.mlp", "in")),
        ("lm_head:out", Site.module("lm_head")),
        (Site("embed"), Site("embed")),
    ],
)
def test_spellings(text: str | Site, site: Site) -> None:
    assert Site.parse(text) == site
    assert Site.parse(str(site)) == site


def test_canonical_strings() -> None:
    assert str(Site("resid_post", 15)) == "resid_post.15"
    assert str(Site("final_norm")) == "final_norm"
    assert str(Site.module("model.layers.3.mlp")) == "model.layers.3.mlp:out"


def test_sites_are_keys() -> None:
    assert {Site("attn_out", 1): "x"}[Site.parse("blocks.1.hook_attn_out")] == "x"
    assert Site("attn_out", 1) != Site("attn_out", 2)


@pytest.mark.parametrize("text", ["resid_pots.3", "blocks.3.hook_resid_pots", "layers.3.resid_pots"])
def test_unknown_name_lists_all_and_the_nearest(text: str) -> None:
    with pytest.raises(ValueError, match=r"resid_pots.*resid_post") as error:
        Site.parse(text)
    assert all(name in str(error.value) for name in SITE_NAMES)


@pytest.mark.parametrize("text", ["resid_post", "embed.3", "model.layers.3:up", ":in", "", "Resid Post.3"])
def test_malformed(text: str) -> None:
    with pytest.raises(ValueError, match=r"site|path"):
        Site.parse(text)


def test_not_a_string() -> None:
    with pytest.raises(TypeError, match="site=3"):
        Site.parse(3)  # type: ignore[arg-type]
