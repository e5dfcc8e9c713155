"""Without a network nothing waits, and a slip of the pen never gets as far as the hub."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from interp.core import hub
from interp.core.hub import hub_answers, load_dataset, refuse_misspelt

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


def test_the_hub_answers_where_something_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert hub_answers()
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert not hub_answers()
        monkeypatch.delenv("HF_HUB_OFFLINE")
    assert not hub_answers()  # nobody listens any more
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    assert hub_answers()  # the proxy may reach it


@pytest.mark.parametrize("answers", [True, False])
def test_data_sets_come_from_the_cache_where_the_hub_is_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    import datasets

    def look(*arguments: object, **how: object) -> tuple[object, ...]:
        return arguments, how, datasets.config.HF_HUB_OFFLINE

    monkeypatch.setattr(hub, "hub_answers", lambda: answers)
    monkeypatch.setattr(datasets, "load_dataset", look)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    assert load_dataset("owner/name", split="train") == (("owner/name",), {"split": "train"}, not answers)
    assert datasets.config.HF_HUB_OFFLINE is False


def test_only_names_close_to_ours_are_refused() -> None:
    for slip in ("smolm2-135", "SmolLM2-135M"):
        with pytest.raises(ValueError, match=rf"source='{slip}' is not known; did you mean 'smollm2-135m'"):
            refuse_misspelt("source", slip, ["smollm2-135m"])
    for name in ("gpt2", "HuggingFaceTB/SmolLM2-135M", "hf:smollm2-135"):
        refuse_misspelt("source", name, ["smollm2-135m"])


def test_the_command_line_says_once_what_the_hub_says() -> None:
    code = (
        "from interp.cli import _setup; _setup(); from huggingface_hub.utils import logging; "
        "logging.get_logger('huggingface_hub.utils._http').warning('Retrying')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.count("Retrying") == 1
