"""Equal things have one identity in every process; unlike things never do; what can't be told apart is refused."""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from interp.core.files import canonical, read_json, write_json
from interp.core.identity import Identity, IdentityMismatch, describe

SCALE = 2.0


def scaled(x, by=3):
    return x * SCALE * by


class Scorer:
    def __init__(self, power):
        self.power = power

    def __call__(self, x):
        return x**self.power


def pipeline(last):
    return make_pipeline(
        *[StandardScaler() for _ in range(12)],
        LogisticRegression(class_weight={**dict.fromkeys(range(39), 1.0), 39: last}),
    )


def module(seed, activation):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(2, 2), activation)


def make_lambda(offset):
    return lambda x: x + offset


VALUES = {
    "an estimator": lambda: pipeline(1.0),
    "its fortieth entry": lambda: pipeline(2.0),
    "a function": lambda: scaled,
    "a partial": lambda: functools.partial(scaled, by=2),
    "another partial": lambda: functools.partial(scaled, by=4),
    "a lambda": lambda: make_lambda(1),
    "its closure": lambda: make_lambda(2),
    "an object": lambda: Scorer(2),
    "its state": lambda: Scorer(3),
    "a method": lambda: Scorer(2).__call__,
    "a scorer": lambda: make_scorer(scaled),
    "a builtin": lambda: len,
    "a ufunc": lambda: np.exp,
    "a class": lambda: Scorer,
    "an array": lambda: np.arange(6.0),
    "its dtype": lambda: np.arange(6.0, dtype=np.float32),
    "its shape": lambda: np.arange(6.0).reshape(2, 3),
    "its order": lambda: np.arange(6.0)[::-1],
    "a negative zero": lambda: np.array([0.0, 1, 2, 3, 4, 5]) * np.array([-1.0, 1, 1, 1, 1, 1]),
    "objects": lambda: np.array(["a", None], dtype=object),
    "a tensor": lambda: torch.arange(6.0),
    "a bf16 tensor": lambda: torch.arange(6.0).bfloat16(),
    "a module": lambda: module(0, torch.nn.ReLU()),
    "its weights": lambda: module(1, torch.nn.ReLU()),
    "its activation": lambda: module(0, torch.nn.GELU()),
    "a generator": lambda: np.random.default_rng(3),
    "its seed": lambda: np.random.default_rng(4),
    "an old generator": lambda: np.random.RandomState(3),
    "a path": lambda: pathlib.Path("a"),
    "a set": lambda: {"a", "b", "c", 1},
    "keys of two kinds": lambda: {1: "a", "1": "b"},
    "one": lambda: 1,
    "true": lambda: True,
    "one point zero": lambda: 1.0,
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "text": lambda: "1",
    "bytes": lambda: b"1",
    "none": lambda: None,
    "empty": lambda: [],
    "a range": lambda: range(3),
}


def test_unlike_things_differ_and_like_things_do_not():
    texts = {name: canonical(describe(make())) for name, make in VALUES.items()}
    assert {name: canonical(describe(make())) for name, make in VALUES.items()} == texts
    assert len(set(texts.values())) == len(VALUES)


def test_every_process_says_the_same():
    code = (
        "import hashlib, tests.core.test_identity as t\n"
        "for name, make in t.VALUES.items(): print(name, t.Identity.of('x', value=make()).digest)"
    )
    seen = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
        )
        seen.append(run.stdout)
    own = "".join(f"{name} {Identity.of('x', value=make()).digest}\n" for name, make in VALUES.items())
    assert seen == [own, own]


def test_a_function_is_its_code_and_what_the_code_uses(monkeypatch):
    before = canonical(describe(scaled))
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 2.5)
    assert canonical(describe(scaled)) != before
    spaces: list[dict[str, object]] = [{"__name__": "mine"} for _ in range(3)]
    for space, body in zip(spaces, ("x + 1", "x + 1", "x + 2"), strict=True):
        exec(f"\n\ndef f(x):\n    def g(y): return {body.replace('x', 'y')}\n    return g(x)", space)
    texts = [canonical(describe(space["f"])) for space in spaces]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    "make", [threading.Lock, lambda: (x for x in [1]), lambda: torch.empty(2, device="meta")]
)
def test_what_cannot_be_told_from_its_like_is_refused(make):
    with pytest.raises(TypeError, match=r"memo\.thing\[0\] is a .*(told apart|told from its like)"):
        describe({"thing": [make()]}, "memo")


def test_equal_sparse_matrices_are_one_however_their_entries_lie():
    dense = np.array([[0, 2.0, 0], [1, 0, 3]])
    one = sparse.csr_matrix(dense)
    other = sparse.csr_matrix(
        (np.array([3.0, 1, 2]), (np.array([1, 1, 0]), np.array([2, 0, 1]))), shape=(2, 3)
    )
    unsorted = sparse.csr_matrix((one.data[[0, 2, 1]], one.indices[[0, 2, 1]], one.indptr), shape=(2, 3))
    texts = {canonical(describe(m)) for m in (one, other, unsorted, one.copy())}
    assert len(texts) == 1
    assert (
        len(texts | {canonical(describe(m)) for m in (one.tocsc(), 2 * one, one.astype(np.float32), dense)})
        == 5
    )


def test_a_cycle_ends():
    loop: list[object] = [1]
    loop.append(loop)
    assert describe(loop) == [1, {"$cycle": 1}]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(PLAIN, PLAIN)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_identities_differ_exactly_where_their_values_do(a, b):
    first, second = Identity.of("memo", value=a), Identity.of("memo", value=b)
    same = repr(a) == repr(b)  # tells 1 from 1.0 and True, 0.0 from -0.0
    if not same and a == b and repr(sorted_keys(a)) == repr(sorted_keys(b)):
        same = True
    assert (first.digest == second.digest) == same
    assert (first.differences(second) == {}) == same


def sorted_keys(value):
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(item) for item in value] if isinstance(value, list) else value


def test_one_message_names_the_first_differences(tmp_path):
    asked = Identity.of("memo", model="b", sizes=[1, 2], more=1, rest=2, new=None)
    kept = Identity.of("memo", model="a", sizes=[1, 3], more=0, rest=0)
    asked.check(asked, "memo.json", "delete it")
    with pytest.raises(IdentityMismatch) as caught:
        asked.check(kept, tmp_path / "memo.json", "choose another file")
    assert str(caught.value) == (
        f"{tmp_path / 'memo.json'} belongs to another memo: model was 'a' there and is 'b' here; "
        "sizes[1] was 3 there and is 2 here; more was 0 there and is 1 here (and 2 more); choose another file"
    )
    with pytest.raises(IdentityMismatch, match="doesn't say to which memo it belongs; delete it"):
        asked.check(None, "x", "delete it")
    with pytest.raises(IdentityMismatch, match="kind was 'store' there and is 'memo' here"):
        asked.check(Identity.of("store", model="b"), "x", "delete it")


def test_it_is_kept_and_a_changed_one_is_refused(tmp_path):
    identity = Identity.of("store", array=np.arange(3), nested={"a": [1, None, 0.1]}, nan=float("nan"))
    path = tmp_path / "id.json"
    write_json(path, identity.to_dict())
    assert Identity.from_dict(read_json(path), path) == identity
    content = identity.to_dict()
    content["covers"]["nested"]["a"][0] = 2
    for damaged in (content, {**content, "kind": 3}, [], {"kind": "store"}, {**content, "covers": None}):
        with pytest.raises(ValueError, match=r"id\.json: its identity"):
            Identity.from_dict(damaged, path)
