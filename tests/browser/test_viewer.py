"""The transcript viewer in a real browser: search, anchors, evidence, and a hostile run that stays inert."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browsing import Open, Opened
from viewer.synthetic import hostile_run, long_run

from opsagent.journal.intact import open_intact
from opsagent.viewer.html import html
from opsagent.viewer.load import view_of
from opsagent.viewer.model import View

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts"
RUNS = sorted(path.name for path in TRANSCRIPTS.iterdir() if (path / "events.jsonl").exists())


def written(folder: Path, page: Path) -> View:
    opened, damage = open_intact(folder)
    view = view_of(opened, damage)
    page.write_text(html(view, opened.log.head), encoding="utf-8")
    return view


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, View]]:
    """The page of every transcript, of a run of 20,000 events and of a hostile one."""
    base = tmp_path_factory.mktemp("pages")
    long_run(base / "long")
    hostile_run(base / "hostile")
    folders = {name: TRANSCRIPTS / name for name in RUNS} | {"long": base / "long", "hostile": base / "hostile"}
    return {name: (base / f"{name}.html", written(folder, base / f"{name}.html")) for name, folder in folders.items()}


Pages = dict[str, tuple[Path, View]]


def search(opened: Opened, text: str, kind: str = "") -> list[str]:
    """Filter, and say which events were found (marked, or of the kind)."""
    opened.page.select_option("#kind", kind)
    opened.page.fill("#q", text)
    opened.page.evaluate("document.getElementById('find').requestSubmit()")
    return list(opened.page.evaluate("[...document.querySelectorAll('.row.hit')].map(row => row.id)"))


def visible(opened: Opened) -> int:
    """Rows that are not filtered away."""
    return int(
        opened.page.evaluate("[...document.querySelectorAll('.row')].filter(row => !row.closest('[hidden]')).length")
    )


def in_sight(opened: Opened, ident: str) -> bool:
    """Whether the beginning of an element is on the screen and nothing lies over it."""
    opened.page.wait_for_timeout(150)
    return bool(
        opened.page.evaluate(
            """id => { const found = document.getElementById(id), box = found.getBoundingClientRect();
            const y = Math.max(box.top, 0) + 12, top = document.elementFromPoint(box.left + 40, y);
            return box.top > -5 && box.top < innerHeight - 20 && found.contains(top); }""",
            ident,
        )
    )


@pytest.mark.parametrize("name", [*RUNS, "hostile"])
def test_everything_is_there_and_nothing_is_asked_of_the_network(open_page: Open, pages: Pages, name: str) -> None:
    path, view = pages[name]
    opened = open_page(path)
    assert opened.page.locator(".row").count() == len(view.rows)
    assert opened.page.locator("#report li").count() == len(view.claims)
    assert opened.page.locator("script").count() == 1
    assert opened.page.locator("img, iframe, object, embed, link:not([rel=icon])").count() == 0
    assert opened.page.evaluate(
        "[...document.querySelectorAll('*')].every(e => ![...e.attributes].some(a => /^on/.test(a.name)))"
    )
    links = opened.page.evaluate("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert all(re.fullmatch(r"#[\w-]+", link) for link in links)
    targets = {link[1:] for link in links}
    assert targets <= set(opened.page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)"))
    ids = opened.page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    assert opened.page.title() != "owned"
    opened.assert_quiet()


@pytest.mark.parametrize(("name", "dark"), [("story", False), ("story", True), ("hostile", True)])
def test_accessible_and_never_too_wide(open_page: Open, pages: Pages, name: str, dark: bool) -> None:
    opened = open_page(pages[name][0], dark=dark, width=360)
    assert opened.too_wide() == 0
    assert opened.accessibility() == []
    opened.assert_quiet()


def test_without_scripts_it_reads_the_same(open_page: Open, pages: Pages) -> None:
    path, view = pages["story"]
    opened = open_page(path, scripts=False, fragment="e218")
    assert opened.page.locator(".row").count() == len(view.rows)
    assert not opened.page.locator("#find").is_visible()
    assert opened.page.locator("#e218 .line").is_visible()
    box = opened.page.locator("#e218").bounding_box()
    assert box is not None
    assert 0 <= box["y"] < 900
    opened.page.locator("#e218 summary").click()
    assert "max_total_num_tokens" in opened.page.locator("#e218 pre").first.inner_text()
    opened.assert_quiet()


def test_evidence_is_one_click_away_and_the_way_back_too(open_page: Open, pages: Pages) -> None:
    path, view = pages["story"]
    opened = open_page(path)
    limit = next(claim for claim in view.claims if "126,646" in claim.text)
    for event in limit.evidence:
        opened.page.locator(f"#{limit.anchor} a.event", has_text=re.compile(f"^{event}$")).click()
        assert opened.page.url.endswith(f"#{event}")
        assert in_sight(opened, event)
        assert opened.page.locator(f"#{event} pre").first.is_visible(), "what proves it is unfolded"
    assert "126646" in str(opened.page.locator(f"#{limit.evidence[0]} pre").first.text_content())
    back = opened.page.locator(f"#{limit.evidence[0]} .refs a[href='#{limit.anchor}']")
    back.click()
    assert in_sight(opened, limit.anchor)
    opened.assert_quiet()


def test_search_leaves_the_right_events(open_page: Open, pages: Pages) -> None:
    path, view = pages["story"]
    opened = open_page(path)
    found = search(opened, "vfio.CONF reboot_host")
    texts = {
        row.event: " ".join([row.text, *(f"{fold.title} {fold.text} {fold.tail}" for fold in row.folds)])
        for row in view.rows
    }
    want = [ident for ident, text in texts.items() if "vfio.conf" in text.lower() and "reboot_host" in text.lower()]
    assert sorted(found) == sorted(want) != []
    assert not opened.page.locator("#report").is_visible()
    red = [row.event for row in view.problems]
    opened.page.fill("#q", "")
    opened.page.select_option("#kind", "problems")
    assert opened.page.locator("#found").inner_text() == f"{len(red)} of {len(view.rows)} events"
    assert opened.page.locator(f"#{red[0]}").is_visible()
    assert search(opened, '"no such words"') == []
    assert visible(opened) == 0
    assert set(search(opened, '"gpus usable"')) < set(search(opened, "gpus usable"))
    opened.page.keyboard.press("Escape")
    opened.page.locator("#clear").click()
    assert visible(opened) == len(view.rows)
    assert opened.page.locator("#report").is_visible()
    opened.assert_quiet()


def test_keys_walk_through_what_was_found(open_page: Open, pages: Pages) -> None:
    opened = open_page(pages["story"][0])
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("launch_sglang")
    seen = []
    for _press in range(3):
        opened.page.keyboard.press("Enter")
        seen.append(opened.page.locator(".row.now").get_attribute("id"))
    opened.page.keyboard.press("Shift+Enter")
    assert opened.page.locator(".row.now").get_attribute("id") == seen[1]
    assert len(set(seen)) == 3
    assert in_sight(opened, str(seen[1]))
    opened.page.keyboard.press("Escape")
    assert opened.page.locator(".row.hit").count() == 0


def test_a_link_to_an_event_that_is_filtered_away_shows_it(open_page: Open, pages: Pages) -> None:
    opened = open_page(pages["story"][0])
    search(opened, "launch_sglang")
    opened.page.evaluate("location.hash = '#e8'")
    assert in_sight(opened, "e8")
    assert opened.page.locator("#q").input_value() == ""


def test_a_long_run_opens_where_it_is_asked_and_finds_one_event_of_many(open_page: Open, pages: Pages) -> None:
    path, view = pages["long"]
    assert len(view.rows) == 20_000
    assert path.stat().st_size < 20_000_000
    opened = open_page(path, fragment="e15000")
    assert opened.page.locator(".row").count() == 20_000
    assert in_sight(opened, "e15000")
    found = search(opened, "needle haystack")
    assert len(found) == 2, "the call's result, and what the model was told of it"
    assert opened.page.locator(f"#{found[0]}").is_visible()
    claim = view.claims[50]
    opened.page.locator("#clear").click()
    assert opened.page.locator(f"#{claim.anchor}").is_visible()
    opened.page.locator(f"#{claim.anchor} a.event").click()
    assert in_sight(opened, claim.evidence[0])
    opened.assert_quiet()


def test_hostile_text_is_text(open_page: Open, pages: Pages) -> None:
    path, _view = pages["hostile"]
    source = path.read_text(encoding="utf-8")
    assert len(source) < 1_000_000
    assert source.count("<script") == 1
    assert not set(source) & set("\x1b\x07\x00\u202e\u202c\u200b\u3164")
    opened = open_page(path, fragment="e9")
    text = opened.page.locator("#e9").inner_text()
    assert "<script>document.title='owned'</script>" in text
    assert "\\u202egnp.exe" in text
    assert "characters are left out here" in text
    assert "{{ 7*7 }}" in text
    assert search(opened, "\\u202egnp.exe </script>") != []
    assert opened.page.evaluate("CSS.highlights.get('found').size") > 0
    assert opened.page.locator("#problems, #report").first.is_hidden()
    opened.assert_quiet()
