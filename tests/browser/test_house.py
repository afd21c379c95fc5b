"""The page that report and transcript stand on: escaping, the policy, and the contrast of every colour."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from browsing import Open
from jinja2 import UndefinedError
from markupsafe import Markup

from opsagent.html import fragment, page

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\x1b[31mred\u202egnp.exe"
BODY = "<header class='top'><h1>Run</h1></header><main id='main'><p id='here'>{}</p></main>"


def test_values_are_escaped_and_nothing_else_runs(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    body = Markup(BODY).format(fragment("parts.html.j2")) + Markup("<p id='x'>{}</p>").format(
        HOSTILE.replace("\u202e", "")
    )
    path.write_text(
        page(HOSTILE, body, script="document.body.dataset.ran = 'yes'", simulated=HOSTILE), encoding="utf-8"
    )
    opened = open_page(path)
    assert opened.page.locator("body").get_attribute("data-ran") == "yes"
    assert opened.page.title().startswith("<script>document.title='owned'</script>")
    assert "\\x1b[31mred\\u202egnp.exe" in opened.page.title()
    assert opened.page.locator("script").count() == 1
    assert opened.page.locator("img").count() == 0
    opened.assert_quiet()


def test_the_policy_refuses_scripts_and_requests_that_got_in(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    bad = Markup(
        "<main id='main'><h1>x</h1><script>document.title='owned'</script><img src='http://127.0.0.1:9/x.png'></main>"
    )
    path.write_text(page("fine", bad), encoding="utf-8")
    opened = open_page(path)
    assert opened.page.title() == "fine"
    assert len(opened.errors) == 2, "the policy's refusals are counted as errors"
    with pytest.raises(AssertionError):
        opened.assert_quiet()


def test_a_script_cannot_end_itself() -> None:
    with pytest.raises(ValueError, match="script"):
        page("t", Markup(""), script="'</ScRipt>'")


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        fragment("base.html.j2", title="t")


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb` (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def palettes() -> dict[str, dict[str, str]]:
    sheet = (files("opsagent") / "html" / "templates" / "style.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)
    return {
        name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for name, block in zip(("light", "dark", "print"), blocks, strict=True)
    }


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_contrast(theme: str) -> None:
    """Text 4.5 to 1 on each background where it stands; what is drawn 3 to 1 on the page (WCAG 1.4.3 and 1.4.11)."""
    colours = palettes()[theme]
    assert set(colours) == set(palettes()["light"])
    text = [(t, b) for t in ("text", "soft", "link") for b in ("bg", "panel")]
    text += [(tone, back) for tone in ("good", "bad", "warn") for back in ("bg", f"{tone}-bg")]
    text += [(t, f"{tone}-bg") for t in ("text", "link") for tone in ("good", "bad", "warn")]
    text += [("text", "mark"), ("on-free", "c-free")]
    segments = [name for name in colours if name.startswith("c-") and name != "c-free"]
    text += [("on-colour", name) for name in segments]
    low = {pair: contrast(*(colours[name] for name in pair)) for pair in text}
    assert {pair: round(ratio, 2) for pair, ratio in low.items() if ratio < 4.5} == {}
    drawn = {name: contrast(colours[name], colours["bg"]) for name in [*segments, "edge"]}
    assert {name: round(ratio, 2) for name, ratio in drawn.items() if ratio < 3} == {}
