"""The HTML report in a real browser: what it says, on every screen, in the dark and on paper, with nothing fetched."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Literal

import pytest
from browsing import Open
from loop.world import TWO_STEPS, ScriptedGate
from replay.record import record
from report.hostile import ATTACK, hostile
from report.test_hostile import EVENTS
from report.test_trouble import FAILS_AND_IS_TAKEN_BACK

from opsagent.cli import cli
from opsagent.data import data_dir
from opsagent.journal.runs import open_run
from opsagent.report import html
from opsagent.report.model import StatusReport
from opsagent.report.write import write_report
from opsagent.verify import verify

FOLDERS = sorted(path for path in data_dir("transcripts").iterdir() if path.is_dir())
WIDTHS = (360, 768, 1200)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Report files by name: every recorded run, one that failed, one that was refused, one that is an attack."""
    made: dict[str, Path] = {}
    for folder in FOLDERS:
        report = StatusReport.model_validate_json((folder / "report.json").read_text(encoding="utf-8"))
        target = tmp_path_factory.mktemp(folder.name)
        write_report(target, report, open_run(str(folder)).log.events)
        made[folder.name] = target / "report.html"
    ends = {"failed": (FAILS_AND_IS_TAKEN_BACK, ScriptedGate()), "denied": (TWO_STEPS, ScriptedGate(denied={"add"}))}
    for name, (body, gate) in ends.items():
        target = tmp_path_factory.mktemp(name) / "run"
        record(target, body, gate=gate)
        made[name] = target / "report.html"
    attack = tmp_path_factory.mktemp("hostile") / "report.html"
    attack.write_text(html.render(hostile(ATTACK), EVENTS), encoding="utf-8")
    return {**made, "hostile": attack}


NAMES = [*(folder.name for folder in FOLDERS), "failed", "denied", "hostile"]


@pytest.mark.parametrize("name", NAMES)
def test_quiet_and_never_wider_than_the_screen(open_page: Open, pages: dict[str, Path], name: str) -> None:
    opened = open_page(pages[name])
    for width in WIDTHS:
        opened.page.set_viewport_size({"width": width, "height": 900})
        assert opened.too_wide() == 0, width
    opened.assert_quiet()


@pytest.mark.parametrize(("name", "dark"), [("h200-qwen36-dummy", False), ("failed", True)])
def test_accessible(open_page: Open, pages: dict[str, Path], name: str, dark: bool) -> None:
    assert open_page(pages[name], dark=dark, width=800).accessibility() == []


@pytest.mark.parametrize(
    ("dark", "width", "media"), [(False, 1200, "screen"), (True, 360, "screen"), (True, 800, "print")]
)
def test_pictures_for_people(
    open_page: Open, pages: dict[str, Path], tmp_path: Path, dark: bool, width: int, media: Literal["screen", "print"]
) -> None:
    """Screenshots of the top in the temporary folder (`--basetemp`), to be looked at; here only that something is drawn."""
    drawn = open_page(pages["story"], dark=dark, width=width, media=media).page.screenshot(path=tmp_path / "story.png")
    assert len(drawn) > 10_000


@pytest.mark.parametrize("name", [folder.name for folder in FOLDERS])
def test_says_what_the_report_says_without_scripts(open_page: Open, pages: dict[str, Path], name: str) -> None:
    report = json.loads((pages[name].parent / "report.json").read_text(encoding="utf-8"))
    opened = open_page(pages[name], scripts=False)
    said = opened.text()
    for limit in report["limits"]:
        assert f"{limit['value']:,}" in said
    for text in [item["text"] for item in report["why"]] + report["open"]:
        assert text in said
    for option in report["trade_offs"]:
        assert f"{option['limits']['max_total_num_tokens']:,}" in said
    assert report["undo"] in said
    assert opened.page.get_by_role("img").count() == 2, "the memory and the frontier"
    assert ("SIMULATED" in said) == report["simulated"]
    assert pages[name].stat().st_size < 300_000


def test_the_pictures_have_the_same_in_tables(open_page: Open, pages: dict[str, Path]) -> None:
    page = open_page(pages["story"]).page
    table = page.get_by_role("table", name="Memory of each GPU, GiB")
    described = page.get_by_role("img", name="Memory of one GPU in GiB").locator("desc").text_content() or ""
    for row in table.get_by_role("row").all()[1:]:
        term = row.get_by_role("rowheader").inner_text().split(" ", 1)[1]
        assert term in described
        assert all(cell == "–" or cell in described for cell in (c.inner_text() for c in row.get_by_role("cell").all()))
    for header in page.locator("th").all():
        assert header.get_attribute("scope") in ("col", "row")


def test_the_evidence_of_every_claim_is_one_click_away(open_page: Open, pages: dict[str, Path]) -> None:
    opened = open_page(pages["story"])
    targets = {link.get_attribute("href") for link in opened.page.locator("main a.event").all()}
    assert len(targets) > 5
    for target in targets:
        assert opened.page.locator(f"article{target}").count() == 1
    link = opened.page.get_by_role("row", name="tokens in all").first.get_by_role("link").first
    link.click()
    proof = opened.page.locator(f"article{link.get_attribute('href')}")
    assert proof.evaluate("e => { const r = e.getBoundingClientRect(); return r.top >= 0 && r.top < innerHeight }")
    assert "126646" in proof.locator("dl.lines").first.inner_text(), "the line that proves it, before the rest"
    opened.assert_quiet()


def test_headings_go_down_one_level_at_a_time(open_page: Open, pages: dict[str, Path]) -> None:
    levels = open_page(pages["story"]).page.locator("h1,h2,h3,h4").evaluate_all("all => all.map(h => +h.tagName[1])")
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_the_dark_is_dark_and_paper_is_white(open_page: Open, pages: dict[str, Path]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    assert open_page(pages["story"]).page.evaluate(ground) == "rgb(255, 255, 255)"
    assert open_page(pages["story"], dark=True).page.evaluate(ground) == "rgb(18, 22, 27)"
    paper = open_page(pages["story"], dark=True, media="print")
    assert paper.page.evaluate(ground) == "rgb(255, 255, 255)"
    assert not paper.page.locator("nav").is_visible()
    assert paper.page.get_by_text("SIMULATED").first.is_visible()
    assert paper.page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.parametrize("name", ["failed", "denied"])
def test_a_run_that_did_not_end_well_says_so_first(open_page: Open, pages: dict[str, Path], name: str) -> None:
    report = json.loads((pages[name].parent / "report.json").read_text(encoding="utf-8"))
    opened = open_page(pages[name], width=360)
    first = opened.page.locator("main section").first
    assert report["failed"]["text"] in first.inner_text()
    assert "What it would take" in first.inner_text()
    assert opened.page.locator(".badge").first.inner_text() == report["status"]


def test_an_attack_is_text(open_page: Open, pages: dict[str, Path]) -> None:
    opened = open_page(pages["hostile"])
    assert opened.page.title().startswith("<script>document.title='owned'</script>")
    assert opened.page.locator("script, main img, iframe, b").count() == 0
    assert "\\u202egnp.exe" in opened.text()
    opened.assert_quiet()


def test_report_and_viewer_link_to_each_other(open_page: Open, pages: dict[str, Path]) -> None:
    """The links are there when both files are: `show --html` into the run's folder writes them."""
    folder = pages["failed"].parent
    assert open_page(pages["failed"]).page.locator("a[href^='transcript.html']").count() == 0
    assert cli.main(["show", str(folder), "--html", str(folder / "transcript.html")], standalone_mode=False) == 0
    page = open_page(pages["failed"]).page
    page.locator("article a[href^='transcript.html#e']").first.click()
    page.wait_for_url("**/transcript.html#e*")
    assert page.locator(":target").is_visible()
    page.get_by_role("link", name="its report").click()
    page.wait_for_url("**/report.html")
    assert page.locator("h1").is_visible()
    assert verify(folder).ok
