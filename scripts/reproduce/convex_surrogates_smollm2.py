"""Part E of the convex surrogates' reproduction: next-token probes on SmolLM2-135M with 8, 128 and 256 outputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from checks import Findings
from jaxtyping import Float, Int
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from classic_ml.surrogates import (
    CrossPolytopeEnsemble,
    DecisionTable,
    PolytopeClassifier,
    PolytopeEmbedding,
    compare_embeddings,
    judge_decisions,
    noise_quantiles,
)
from interp.activations import load_text, pack
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model

SITE, N_CLASSES, TOKENS, TEST_TOKENS = "resid_post.24", 256, 4_500, 2_000
PENALTY = 300.0


@dataclass(frozen=True)
class NextTokens:
    """Rows of a text: activations (N, d), the next token (N,), and the hidden state the model predicts it from."""

    X: Float[np.ndarray, "N d"]
    next_token: Int[np.ndarray, " N"]
    final: Float[np.ndarray, "N d"]


def read_next_tokens(model: LanguageModel, split: str, tokens: int) -> NextTokens:
    """One forward pass over Python's documentation; the first position of a context, a sink, is left out."""
    contexts = pack(load_text("python-docs", split=split), model, max_tokens=tokens)
    parts = []
    for first in range(0, len(contexts), 8):
        batch = contexts[first : first + 8]
        acts = model.activations(
            batch.input_ids,
            [SITE, "final_norm"],
            attention_mask=batch.attention_mask,
            segment_ids=batch.segment_ids,
        )
        inside = (batch.segment_ids[:, 1:] == batch.segment_ids[:, :-1]) & (batch.position_ids[:, :-1] > 0)
        inside &= batch.attention_mask[:, 1:].bool()
        parts.append(
            (acts[SITE][:, :-1][inside], batch.input_ids[:, 1:][inside], acts["final_norm"][:, :-1][inside])
        )
    X, following, final = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return NextTokens(X.double().numpy(), following.numpy(), final.double().numpy())


def label_distributions(
    model: LanguageModel, final: Float[np.ndarray, "N d"], classes: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "N n"]:
    """The model's next-token probabilities among `classes`."""
    unembed = model.module.get_output_embeddings().weight[torch.from_numpy(classes)].detach().double().numpy()
    logits = final @ unembed.T
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def next_token_probes(findings: Findings) -> None:
    model = load_model("smollm2-135m")
    share = 2 if findings.quick else 1
    train = read_next_tokens(model, "train", TOKENS // share)
    test = read_next_tokens(model, "heldout", TEST_TOKENS // share)
    n_classes = 64 if findings.quick else N_CLASSES
    counts = np.bincount(train.next_token)
    classes = np.argsort(-counts, kind="stable")[:n_classes]  # by falling frequency
    code = np.full(max(train.next_token.max(), test.next_token.max()) + 1, -1)
    code[classes] = np.arange(n_classes)
    y, y_test = code[train.next_token], code[test.next_token]
    X, X_test = train.X[y >= 0], test.X[y_test >= 0]
    P = label_distributions(model, test.final[y_test >= 0], classes)
    y, y_test = y[y >= 0], y_test[y_test >= 0]
    quantiles = noise_quantiles(P)
    print(f"{len(y)} rows to train on, {len(y_test)} to test, {n_classes} next tokens; {SITE}")

    bits = int(n_classes - 1).bit_length()
    embeddings = {
        "cube": PolytopeEmbedding.cube(bits),
        "cross-polytope": PolytopeEmbedding.cross_polytope(n_classes // 2),
        "one-hot": PolytopeEmbedding.simplex(n_classes),
    }
    exact = compare_embeddings(P, embeddings)
    print("exact means of the model's distributions, decoded:", exact, sep="\n")
    low = P.max(1) > 0.5
    for name, embedding in embeddings.items():
        U = embedding.embed_distribution(P)
        right = embedding.link(U) == P.argmax(1)
        strict = embedding.in_strict_region(U)
        findings.check(
            "E",
            f"exact means, {name}: modes lost where max p > 1/2, and where certified",
            "0 and 0",
            f"{int((~right[low]).sum())} of {int(low.sum())} and {int((~right[strict]).sum())} of {int(strict.sum())}",
            bool(right[low].all() and right[strict].all()),
        )

    regressor = make_pipeline(StandardScaler(), Ridge(alpha=PENALTY))
    negligible = 0.001
    rows = [
        judge_decisions(
            P, np.full(len(P), 0), name="most frequent token", y=y_test, n_outputs=0, negligible=negligible
        )
    ]
    predicted: dict[str, np.ndarray] = {}
    for name, embedding in embeddings.items():
        probe = PolytopeClassifier(embedding, regressor).fit(X, y)
        predicted[name] = probe.predict(X_test)
        rows.append(
            judge_decisions(
                P,
                predicted[name],
                name=f"{name} probe",
                embedding=embedding,
                reports=probe.projected(X_test),
                y=y_test,
                negligible=negligible,
            )
        )
        inside = embedding.contains(probe.predict_embedding(X_test)).mean()
        findings.remarks.append(
            f"E  {name} probe: {inside:.3f} of its reports lie in the polytope, the others are projected"
        )
        certified = probe.certified(X_test)
        if name != "one-hot" and 0 < certified.sum() < len(P):
            right = P[np.arange(len(P)), predicted[name]] == P.max(1)
            findings.check(
                "E",
                f"{name} probe: agreement where certified, above elsewhere",
                "above",
                f"{right[certified].mean():.3f} (of {int(certified.sum())}) against {right[~certified].mean():.3f}",
                right[certified].mean() > right[~certified].mean(),
            )
    ensemble = CrossPolytopeEnsemble(regressor).fit(X, y)
    several = ensemble.predict(X_test)
    name = f"{len(ensemble.schedule_)} instances"
    rows.append(
        judge_decisions(P, several, name=name, y=y_test, n_outputs=n_classes // 2, negligible=negligible)
    )
    differ = int((several != predicted["one-hot"]).sum())
    findings.check(
        "E",
        f"probes: decisions of {name} and of one-hot that differ",
        "0",
        f"{differ} of {len(several)}",
        differ == 0,
    )
    table = DecisionTable(rows, quantiles)
    print("probes, trained on the tokens that came:", table, sep="\n")
    findings.remarks += [f"E  {line}" for line in ["exact means", *str(exact).splitlines()]]
    findings.remarks += [f"E  {line}" for line in ["probes", *str(table).splitlines()]]
    findings.figures["probes"] = table.plot()
    findings.numbers["exact means"] = [asdict(row) for row in exact.rows]
    findings.numbers["probes"] = [asdict(row) for row in table.rows]
