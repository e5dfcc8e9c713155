"""The page's data, its escaping and its figures; and the page itself in a real browser, opened from file://."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from interp.activations.store import ActivationStore
from interp.core.history import History
from interp.sae.dashboard.collect import FeatureSettings
from interp.sae.dashboard.page import script_json
from interp.sae.dashboard.report_folder import report
from interp.sae.dashboard.tokens import Vocabulary, repr_html, visible
from interp.sae.evaluate import evaluate
from tests.sae import tiny_world as world

EVIL = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ActivationStore:
    return world.store(tmp_path_factory.mktemp("store") / "s", n=60)


@pytest.fixture(scope="module")
def page(store: ActivationStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on two SAEs with everything in it, and names that would break a careless page."""
    lm, contexts = world.model(), world.contexts(20)
    saes = [world.random_sae(), world.random_sae(24, seed=8)]
    scores = [evaluate(s, lm, contexts, name=f"run {i}", progress=False) for i, s in enumerate(saes)]
    history = History(
        [{"step": i, "loss": 100 / (i + 1), "l0": 30 - i % 7, "fvu": 0.5} for i in range(1, 900)]
    )
    return report(
        saes,
        store,
        lm,
        out=tmp_path_factory.mktemp("report") / "out",
        evaluation=scores,
        history=[history, history],
        names=[f"gated {EVIL}", "baseline"],
        settings=FeatureSettings(density_range=(0.0, 1.0), min_contexts=3),
        progress=False,
    )


def embedded(path: Path) -> dict[str, Any]:
    """The JSON in the page, found the way a browser finds it."""

    class Finder(HTMLParser):
        inside, data = False, ""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.inside = tag == "script" and ("id", "data") in attrs

        def handle_data(self, data: str) -> None:
            self.data += data if self.inside else ""

    finder = Finder()
    finder.feed(path.read_text(encoding="utf-8"))
    return json.loads(finder.data)


def test_the_folder_holds_page_figures_and_data(page: Path) -> None:
    names = {str(p.relative_to(page.parent)) for p in page.parent.rglob("*") if p.is_file()}
    figures = {f"figures/{name}.png" for name in ("pareto", "densities", "losses")}
    assert names == {"index.html", "features.json"} | figures
    for name in figures:
        assert (page.parent / name).read_bytes().startswith(b"\x89PNG")
    content = json.loads((page.parent / "features.json").read_text())
    assert content["d_sae"] == 40
    assert len(content["features"]) == 38


def test_the_page_fetches_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "@@" not in text
    outside = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.S)
    assert set(re.findall(r"https?://[^\"' ]+", outside)) == {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"@import|url\((?!data:)|<link[^>]+stylesheet|<script[^>]+src", outside)
    assert "default-src 'none'" in outside


def test_the_embedded_data_says_what_was_measured(page: Path) -> None:
    data = embedded(page)
    rows = {row["label"]: row["values"] for row in data["metrics"]["rows"]}
    assert len(rows["loss recovered"]) == 2
    assert [column["name"] for column in data["metrics"]["columns"]] == [f"gated {EVIL}", "baseline"]
    assert len(data["charts"]["densities"]) == 2
    (standard,) = data["charts"]["frontier"]
    assert [point["name"] for point in standard["points"]] == ["run 0", "run 1"]
    curve = data["charts"]["histories"][0]
    assert len(curve["step"]) == len(curve["loss"]) <= 401
    assert curve["step"][-1] == 899
    feature = data["features"][0]
    context, _, _, peak, ids, fired = feature["groups"][0]["examples"][0]
    assert isinstance(context, int)
    assert dict(map(tuple, fired))[peak] == pytest.approx(feature["max"], rel=1e-3)
    strip = "".join(data["tokens"][t] for t in ids)
    assert any(strip[:12] in text for text in (*world.TEXTS, strip))


def test_byte_level_tokens_are_legible(page: Path) -> None:
    tokens = embedded(page)["tokens"]
    assert not any("Ġ" in t or "Ċ" in t for t in tokens)
    assert any(t.startswith(" ") for t in tokens)


def test_data_cannot_leave_its_script_element(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("</script>") == 2
    assert "<script>window.hacked" not in text
    value = {"a": [EVIL, "<!--", "&amp;", "\u2028", "é\ud800", None, 1.5]}
    written = script_json(value)
    assert not set("<>&\u2028") & set(written)
    assert json.loads(written.replace("\\ud800", ""))["a"][:3] == [EVIL, "<!--", "&amp;"]
    with pytest.raises(ValueError, match="JSON"):
        script_json(float("nan"))


def test_a_run_folder_brings_its_metrics_and_history(store: ActivationStore, tmp_path: Path) -> None:
    run = tmp_path / "my run"
    sae = world.random_sae()
    sae.save_pretrained(run / "sae")
    scores = evaluate(sae, world.model(), world.contexts(5), progress=False)
    scores.save(run / "metrics.json")
    History([{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]).rewrite(run)
    path = report(run, store.folder, latents=[1, 5], progress=False)
    assert path == run / "report" / "index.html"
    data = embedded(path)
    assert data["metrics"]["columns"][0]["name"] == "my run"
    assert data["charts"]["histories"][0]["loss"] == [2.0, 1.0]
    assert [f["index"] for f in data["features"]] == [1, 5]
    assert all(re.fullmatch(r"#\d+", t) for t in data["tokens"])
    assert data["features"][0]["promoted"] is None


def test_a_report_without_anything_but_an_sae(store: ActivationStore, tmp_path: Path) -> None:
    path = report([world.zero_sae(), world.zero_sae()], store, out=tmp_path, progress=False)
    data = embedded(path)
    assert data["features"] == []
    assert data["metrics"]["rows"] == []
    assert [c["name"] for c in data["metrics"]["columns"]] == ["standard", "standard (2)"]
    with pytest.raises(ValueError, match="at least one"):
        report([], store, out=tmp_path)


def test_strips_for_notebooks_are_escaped_signed_and_zero_safe() -> None:
    strip = repr_html([" a", "<b>", "\n", "\tç"], [0.0, 2.0, -1.0, 0.5], title=EVIL)
    assert "<b>" not in strip
    assert "&lt;b&gt;" in strip
    assert "<script>" not in strip
    assert "·a" in strip
    assert "⏎" in strip
    assert "rgba(224,108,0,0.850)" in strip  # the largest, warm
    assert "rgba(37,99,235,0.425)" in strip  # half as large and negative, cold
    assert "position 1: 2" in strip
    assert "rgba" not in repr_html(["a", "b"], [0.0, 0.0])
    assert "rgba" not in repr_html([], [])
    with pytest.raises(ValueError, match="2 tokens but 1 values"):
        repr_html(["a", "b"], [1.0])
    with pytest.raises(ValueError, match="NaN"):
        repr_html(["a"], [float("nan")])


def test_words_ignore_case_and_blanks() -> None:
    vocabulary = Vocabulary(["The", " the", "THE ", " ", "  ", "x"])
    ids = vocabulary.word_ids([0, 1, 2, 3, 4, 5, 9]).tolist()
    assert ids[0] == ids[1] == ids[2]
    assert len(set(ids)) == 5
    assert vocabulary.word(ids[0]) == "the"
    assert vocabulary.word(ids[-1]) == "#9"
    assert vocabulary.string(9) == "#9"
    assert visible(" a\n") == "·a⏎"


# ---- in the browser ----------------------------------------------------------------------------------


PATIENCE_MS = 180_000  # of a busy machine; nothing here is slow


def browser_path(playwright: Any) -> str:
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if found := shutil.which(name):
            return found
    own = playwright.chromium.executable_path
    if Path(own).exists():
        return own
    pytest.fail(
        "the report has to be looked at in a browser, and there is none: install chromium (apt-get install "
        "chromium, or python -m playwright install chromium)"
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-background-networking"]
        running = playwright.chromium.launch(
            executable_path=browser_path(playwright), args=flags, timeout=PATIENCE_MS
        )
        yield running
        running.close()


@pytest.fixture
def tab(browser: Any, page: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    requests: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(page.as_uri())
    opened.wait_for_selector("#detail h3")
    yield opened
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert opened.evaluate("window.hacked") is None
    context.close()


def shown(tab: Any) -> int:
    return int(tab.inner_text("#detail h3").removeprefix("Latent "))


def test_the_page_opens_complete(tab: Any, page: Path) -> None:
    data = embedded(page)
    assert tab.title() == "Standard SAE at resid_post.1"
    assert shown(tab) == data["features"][0]["index"]
    assert tab.locator("#list [role=option]").count() == len(data["features"])
    # Two frontiers, densities, two training curves; and the histogram of the latent.
    assert tab.locator("#charts figure").count() == 5
    assert tab.locator("#charts svg [d], #charts svg polyline").count() >= 4
    assert tab.locator("#metrics tbody tr").count() == len(data["metrics"]["rows"])
    first = data["features"][0]["groups"][0]["examples"][0]
    strip = tab.locator("#detail .strip").first
    assert strip.locator("span").count() == len(first[4])
    assert strip.locator("span.peak").count() == 1
    alpha = re.search(r"0\.\d+", strip.locator("span.peak").get_attribute("style"))
    assert alpha is not None
    assert float(alpha[0]) == pytest.approx(0.7, abs=0.01)
    assert EVIL in tab.inner_text("#metrics")


def test_clicking_and_keys_move_between_latents(tab: Any, page: Path) -> None:
    order = [feature["index"] for feature in embedded(page)["features"]]
    tab.locator("#list [role=option]").nth(3).click()
    assert shown(tab) == order[3]
    assert tab.url.endswith(f"#latent-{order[3]}")
    assert tab.locator("#list [aria-selected=true]").get_attribute("data-index") == str(order[3])
    tab.keyboard.press("j")
    assert shown(tab) == order[4]
    tab.keyboard.press("k")
    tab.keyboard.press("k")
    assert shown(tab) == order[2]
    tab.locator(".steps button").last.click()
    assert shown(tab) == order[3]
    tab.locator("#detail .bars a").first.click()
    assert shown(tab) == int(tab.url.rsplit("-", 1)[1])


def test_search_by_number_and_by_text(tab: Any, page: Path) -> None:
    data = embedded(page)
    tab.keyboard.press("/")
    tab.keyboard.type("17")
    items = tab.locator("#list [role=option]")
    assert items.first.get_attribute("data-index") == "17"
    tab.keyboard.press("Enter")
    assert shown(tab) == 17
    tab.fill("#search", "no such text anywhere")
    assert items.count() == 0
    assert tab.locator("#list .empty").count() == 1
    tab.fill("#search", "imports a mod")
    found = {int(i) for i in items.evaluate_all("all => all.map((item) => item.dataset.index)")}
    assert found
    for feature in data["features"]:
        strips = ["".join(data["tokens"][t] for t in e[4]) for e in feature["groups"][0]["examples"]]
        assert (feature["index"] in found) == any("imports a mod" in s.lower() for s in strips)
    tab.keyboard.press("Escape")
    assert items.count() == len(data["features"])


def test_sorting_and_kinds(tab: Any, page: Path) -> None:
    features = embedded(page)["features"]
    tab.select_option("#sort", "index")
    listed = tab.locator("#list [role=option]").evaluate_all("all => all.map((i) => +i.dataset.index)")
    assert listed == sorted(f["index"] for f in features)
    tab.select_option("#sort", "density")
    listed = tab.locator("#list [role=option]").evaluate_all("all => all.map((i) => +i.dataset.index)")
    by_index = {f["index"]: f["density"] for f in features}
    densities = [by_index[i] for i in listed]
    assert densities == sorted(densities, reverse=True)
    tab.locator("#kinds button").first.click()
    kind = tab.locator("#kinds button").first.get_attribute("data-kind")
    assert tab.locator("#list [role=option]").count() == sum(f["kind"] == kind for f in features) > 0


def test_samples_unfold_and_tooltips_tell_the_value(tab: Any, page: Path) -> None:
    feature = embedded(page)["features"][0]
    fold = tab.locator("#detail details").first
    assert fold.locator("li").count() == 0
    fold.locator("summary").click()
    fold.locator("li").first.wait_for()
    assert fold.locator("li").count() == len(feature["groups"][1]["examples"])
    tab.locator("#detail .strip span.peak").first.hover()
    tip = tab.inner_text("#tip")
    assert tip.startswith(f"{feature['max']:.3g}"[:3])
    assert "position" in tip


def test_text_of_the_store_is_shown_not_run(tab: Any) -> None:
    tab.fill("#search", "<script>alert")
    assert tab.locator("#list [role=option]").count() > 0
    tab.keyboard.press("Enter")
    assert "<script>alert" in "".join(tab.locator("#detail .strip").all_text_contents())
    assert tab.locator("#detail script").count() == 0


@pytest.mark.parametrize("width", [390, 820, 1600])
def test_nothing_overflows_sideways(tab: Any, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_dark_mode_has_its_own_colours(browser: Any, page: Path) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        context.set_default_timeout(PATIENCE_MS)
        opened = context.new_page()
        opened.goto(page.as_uri())
        seen[scheme] = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        context.close()
    assert seen["light"] == "rgb(251, 250, 248)"
    assert seen["dark"] == "rgb(20, 23, 26)"
