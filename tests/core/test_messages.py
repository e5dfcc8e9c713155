"""Errors that teach, and warnings said once."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from interp.core.messages import at_least, each_once, nearest, one_of, warn_once


def test_the_nearest_name_and_all_of_them():
    assert nearest("resid_pots", ("resid_pre", "resid_post")) == (
        "did you mean 'resid_post'? choices: resid_pre, resid_post"
    )
    assert nearest("zebra", (1, "two")) == "choices: 1, two"
    assert nearest("most", ("highest", "lowest")) == "choices: highest, lowest"


def test_one_of():
    one_of("mode", "min", ("min", "max"))
    with pytest.raises(
        ValueError, match=r"mode = 'mim' is not known; did you mean 'min'\? choices: min, max"
    ):
        one_of("mode", "mim", ("min", "max"))


def test_at_least():
    at_least("steps", 1, 1)
    at_least("steps", np.int64(1), 1)
    with pytest.raises(ValueError, match="steps = 0 must be at least 1"):
        at_least("steps", 0, 1)
    for value in (1.0, "1", True, None):
        with pytest.raises(TypeError, match=r"steps = .*: give an integer"):
            at_least("steps", value, 1)


def test_each_once():
    each_once("seeds", (0, 1, 2))
    with pytest.raises(ValueError, match="seeds: 1 is there twice; name each once"):
        each_once("seeds", (0, 1, 2, 1))


def test_a_warning_is_said_once_for_each_logger(caplog):
    for name in ("first", "first", "second"):
        warn_once(logging.getLogger(f"tests.{name}"), "key", "100% sure")
    assert [record.getMessage() for record in caplog.records] == ["100% sure"] * 2
