"""Dictionaries on the Hugging Face hub, of which a folder on this machine plays the part."""

from __future__ import annotations

import fnmatch
import shutil
import socket
import time
from pathlib import Path

import huggingface_hub
import pytest
import torch
import yaml

import interp
from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.topk import TopKConfig, TopKSAE
from interp.sae.formats import hub, save_as
from interp.sae.loading import load_sae
from interp.sae.metadata import SAEMetadata
from interp.sae.metrics import density_histogram
from interp.sae.scores import SAEEvaluation
from tests.sae.sparse_world import randomize

D, F = 8, 12


def dictionary() -> GatedSAE:
    sae = randomize(GatedSAE(GatedSAEConfig(D, F)))
    sae.metadata = SAEMetadata(
        model_name="owner/model", site="resid_post.3", tokens=5_000_000, lr=1e-3, text={"name": "a | b"}
    )
    return sae


def figures(sae) -> SAEEvaluation:
    nothing = torch.zeros(F, dtype=torch.long)
    return SAEEvaluation(
        name="gated",
        architecture="gated",
        site="resid_post.3",
        d_in=D,
        d_sae=F,
        n_tokens=1000,
        l0=4.25,
        l1=2.0,
        mse=0.5,
        fvu=0.125,
        gamma=1.0,
        gamma_centered=1.0,
        cosine=0.9,
        l2_ratio=0.95,
        alive=1.0,
        density=density_histogram(nothing, 1000),
        positions="trained",
        dictionary=sae.identity().digest,
    )


class Shelf:
    """What a hub does, with a folder: repositories are folders ``owner/name`` in it."""

    def __init__(self, root: Path) -> None:
        self.root, self.fetched = root, []

    def create_repo(self, repo: str, *, private: bool, exist_ok: bool) -> str:
        (self.root / repo).mkdir(parents=True, exist_ok=exist_ok)
        return f"https://hub/{repo}"

    def upload_folder(self, *, repo_id, folder_path, path_in_repo, revision, commit_message) -> None:
        self.message = commit_message
        shutil.copytree(folder_path, self.root / repo_id / (path_in_repo or ""), dirs_exist_ok=True)

    def list_repo_files(self, repo: str, *, revision: str | None) -> list[str]:
        self._check(revision)
        there = self.root / repo
        return sorted(p.relative_to(there).as_posix() for p in there.rglob("*") if p.is_file())

    def snapshot_download(
        self, repo: str, *, revision=None, allow_patterns=None, local_files_only=False
    ) -> str:
        if local_files_only:
            raise huggingface_hub.errors.LocalEntryNotFoundError("not there")
        self.fetched += [
            name
            for name in self.list_repo_files(repo, revision=revision)
            if any(fnmatch.fnmatch(name, pattern) for pattern in allow_patterns)
        ]
        return str(self.root / repo)

    def _check(self, revision: str | None) -> None:
        if revision not in (None, "main"):
            raise huggingface_hub.errors.RevisionNotFoundError(
                f"404 Not Found.\nNo {revision}", response=_Response()
            )


class _Response:
    headers: dict[str, str] = {}  # noqa: RUF012
    request = None
    status_code = 404


@pytest.fixture
def shelf(tmp_path, monkeypatch) -> Shelf:
    made = Shelf(tmp_path / "hub")
    monkeypatch.setattr(hub, "hub_answers", lambda: True)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: made)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", made.snapshot_download)
    monkeypatch.chdir(tmp_path)
    return made


def test_what_is_pushed_comes_back_to_the_bit(shelf):
    sae = dictionary()
    assert sae.push_to_hub("me/gated") == "https://hub/me/gated"
    assert shelf.message == "Add a gated SAE"
    found = load_sae("me/gated")
    assert found.identity() == sae.identity()
    assert found.metadata.site == "resid_post.3"


def test_several_in_one_repository_each_fetched_alone(shelf):
    saes = {"layers.3": dictionary(), "layers.4": randomize(TopKSAE(TopKConfig(D, F, k=3)))}
    for name, sae in saes.items():
        interp.push_to_hub(sae, "me/several", subfolder=name)
    with pytest.raises(
        FileNotFoundError, match=r"holds no SAE in 'its root'; choose a subfolder: layers.3, layers.4"
    ):
        load_sae("me/several")
    assert load_sae("me/several", subfolder="layers.4").identity() == saes["layers.4"].identity()
    assert shelf.fetched
    assert all(name.startswith("layers.4/") for name in shelf.fetched)
    with pytest.raises(FileNotFoundError, match=r"no SAE in 'layers.5/'"):
        load_sae("me/several", subfolder="layers.5")
    with pytest.raises(FileNotFoundError, match=r"'me/several' on the Hugging Face hub: .*No v2"):
        load_sae("me/several", subfolder="layers.4", revision="v2")
    assert "\n" not in _message(lambda: load_sae("me/several", subfolder="layers.4", revision="v2"))


def _message(call) -> str:
    with pytest.raises(FileNotFoundError) as caught:
        call()
    return str(caught.value)


def test_other_libraries_folders_on_the_hub(shelf):
    save_as(randomize(TopKSAE(TopKConfig(D, F, k=3))), shelf.root / "eleuther/saes/layers.2.mlp", "sparsify")
    sae = load_sae("eleuther/saes", subfolder="layers.2.mlp")
    assert (sae.architecture, sae.cfg.k) == ("topk", 3)
    interp.push_to_hub(dictionary(), "me/lens", format="saelens")
    assert (shelf.root / "me/lens/cfg.json").is_file()
    assert load_sae("me/lens").architecture == "gated"


def test_a_runs_figures_stand_in_the_card(shelf, tmp_path):
    sae = dictionary()
    sae.save_pretrained(tmp_path / "run" / "sae")
    figures(sae).save(tmp_path / "run" / "metrics.json")
    interp.push_to_hub(tmp_path / "run", "me/gated")
    card = (shelf.root / "me/gated/README.md").read_text()
    _, head, body = card.split("---\n", 2)
    assert yaml.safe_load(head) == {
        "library_name": "interp-toolkit",
        "tags": ["sparse-autoencoder", "interpretability", "gated"],
        "base_model": "owner/model",
    }
    for said in (
        "12 latents for resid_post.3 of owner/model",
        "interp.load_sae('me/gated')",
        "| tokens | 5,000,000 |",
        "| text | a \\| b |",
        "| L0 | 4.2 |",
        "| FVU | 0.1250 |",
    ):
        assert said in body
    assert (shelf.root / "me/gated/metrics.json").is_file()


def test_figures_of_another_dictionary_are_left_out(shelf, tmp_path):
    dictionary().save_pretrained(tmp_path / "run" / "sae")
    figures(randomize(GatedSAE(GatedSAEConfig(D, F)), seed=9)).save(tmp_path / "run" / "metrics.json")
    interp.push_to_hub(tmp_path / "run", "me/gated")
    assert "Figures" not in (shelf.root / "me/gated/README.md").read_text()


def test_the_card_says_where_in_the_repository(shelf):
    card = hub.model_card(dictionary(), "me/several", subfolder="layers.3", revision="v1")
    assert "interp.load_sae('me/several', subfolder='layers.3', revision='v1')" in card
    assert "Figures" not in card


def test_a_repository_of_something_else(shelf):
    (shelf.root / "me/text").mkdir(parents=True)
    (shelf.root / "me/text/README.md").write_text("nothing")
    assert (
        _message(lambda: load_sae("me/text"))
        == "'me/text' on the Hugging Face hub holds no SAE in 'its root'"
    )


def test_offline_it_fails_at_once_with_one_line(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()[1]
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{nobody}")
    start = time.perf_counter()
    said = _message(lambda: load_sae("nobody/here-at-all", subfolder="layers.3"))
    assert said.startswith("'nobody/here-at-all' is no folder here, the Hugging Face hub doesn't answer")
    with pytest.raises(
        ConnectionError, match="hub doesn't answer: 'me/gated' can't be uploaded now"
    ) as caught:
        dictionary().push_to_hub("me/gated")
    assert time.perf_counter() - start < 10  # its own client tries for half a minute
    assert "\n" not in said + str(caught.value)


@pytest.mark.parametrize("repo", ["gated", "a/b/c", "me/", "me/a b", None])
def test_what_is_no_name_of_a_repository(repo):
    with pytest.raises(ValueError, match="write it as 'owner/name'"):
        dictionary().push_to_hub(repo)


def test_folders_here_come_first_and_have_no_revisions(tmp_path, monkeypatch):
    sae = dictionary()
    sae.save_pretrained(tmp_path / "me" / "gated")
    monkeypatch.chdir(tmp_path)
    assert load_sae("me/gated").identity() == sae.identity()
    assert load_sae("me", subfolder="gated").identity() == sae.identity()
    with pytest.raises(ValueError, match="revision = 'v1' is for the hub, and me/gated is a folder here"):
        load_sae("me/gated", revision="v1")
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        load_sae(Path("nobody/here"))  # a path is never a name on the hub
