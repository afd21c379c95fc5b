"""What is drawn: never wider or higher than the terminal, nothing of others obeyed, the important part kept."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from live.events import Story
from rich.cells import cell_len

from opsagent.live_draw import Foot, Used, changing, clock, heading, stays
from opsagent.live_scene import Line
from opsagent.live_work import words
from opsagent_tools.tool import Progress

FOOT = Foot("7f3a", (Used("", 761, 21600, time=True), Used("calls", 63, 200)), "opsagent resume 7f3a")
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
"""One picture to a terminal that joins, three to one that does not."""
HOSTILE = [
    "\x1b[2J\x1b[31mred", "evil\u202etxt", "\u200b" * 50, "\u6f22\u5b57" * 400, "\r\nover", "[red]markup[/red]", "a\tb",
    FAMILY * 20, "x" * 1_000_000,
]  # fmt: skip
TEXT = st.one_of(st.text(max_size=200), st.sampled_from(HOSTILE))


def busy(text: str = "org/name over xet, 9 MiB/s", done: float | None = 10.0) -> Story:
    story = Story()
    story.enter("fetch")
    call = story.call("download_model", tier="R1", repo=text)
    story.start(call)
    for _ in range(5):
        story.after(10)
        story.scene.progress(call, Progress(text, done, 50.0 if done is not None else None, "GiB", 60.0), story.now)
    return story


def rows(story: Story, width: int = 100, height: int = 24, foot: Foot = FOOT) -> list[str]:
    return [row.plain for row in changing(story.scene, foot, story.now, width, height)]


def test_the_region_says_what_runs_how_far_it_is_what_is_left_and_how_to_go_on() -> None:
    story = Story()
    story.enter("fetch")
    call = story.call("download_model", tier="R1")
    story.start(call)
    for step in range(1, 7):
        story.after(10)
        story.tell(call, "org/name over xet, 1 MiB/s", step * 5.0, 50.0, "GiB")
    at_work, bar, ahead, budgets, hint = rows(story)
    assert "fetch" in at_work
    assert "download_model on gpu1" in at_work
    assert "1:00" in at_work
    assert "30/50 GiB" in bar
    assert "512 MiB/s" in bar
    assert "0:40 left" in bar
    assert bar.count("█") == round(0.6 * (bar.count("█") + bar.count("░")) - 0.5)
    assert "launch" in ahead
    assert "look" in ahead  # it was not left yet
    assert "7f3a · 12:41 of 6 h · calls 63/200" in budgets
    assert "opsagent resume 7f3a" in hint


def test_an_expected_time_stands_beside_the_elapsed_one() -> None:
    story = Story()
    story.scene.expect = lambda host, tool: 200.0 if (host, tool) == ("gpu1", "curl_test") else None
    story.enter("look")
    call = story.call("curl_test")
    story.start(call)
    story.after(38)
    assert "0:38 of about 3:20" in rows(story)[0]


def test_a_stall_is_said_instead_of_a_rate() -> None:
    story = busy()
    story.after(45)
    assert any("nothing came for 1:" in row for row in rows(story))


def test_a_budget_that_runs_out_is_marked_and_a_stop_is_answered() -> None:
    foot = Foot("7f3a", (Used("calls", 190, 200),), "opsagent resume 7f3a", stopping=True)
    drawn = changing(busy().scene, foot, 60.0, 100, 24)
    assert any("yellow" in str(span.style) for span in drawn[-2].spans)
    assert "Stopping" in drawn[-1].plain


def test_in_a_low_terminal_the_call_at_work_is_kept_and_the_rest_goes() -> None:
    for height in range(1, 8):
        drawn = rows(busy(), height=height)
        assert len(drawn) <= height
        assert "fetch" in drawn[0]


@given(TEXT, st.integers(20, 200), st.integers(1, 30), st.none() | st.floats(0, 50))
def test_whatever_is_told_the_region_fits_and_is_inert(text: str, width: int, height: int, done: float | None) -> None:
    story = busy(text, done)
    story.event("error", what=text, hint=text)
    story.scene.log_line = story.scene.log_line or "line"
    drawn = rows(story, width, height)
    assert 0 < len(drawn) <= height
    for row in drawn:
        assert cell_len(row) <= width
        assert row.isprintable()


@given(TEXT, st.integers(20, 200), st.booleans())
@example("0" * 8, 20, True)
def test_what_stays_fits_in_width_and_in_a_few_rows(text: str, width: int, step: bool) -> None:
    line = Line(words(text), "bad", "✘" if step else "", "launch" if step else "", 3.0 if step else None)
    drawn = stays(line, width)
    assert 0 < len(drawn) <= 4
    for row in drawn:
        assert cell_len(row.plain) <= width
        assert row.plain.isprintable()


def test_the_heading_is_never_cut_before_it_says_simulated() -> None:
    text = 'migrate · kpro6 → kpro5/ct129 · autopilot (no LLM) · SIMULATED lab "story"'
    assert "SIMULATED" in " ".join(row.plain for row in heading(text, 40))


def test_times_read_like_a_clock() -> None:
    assert [clock(s) for s in (0, 38.9, 761, 3723)] == ["0:00", "0:38", "12:41", "1:02:03"]


def test_while_a_model_thinks_it_is_named_with_its_time() -> None:
    story = Story()
    story.enter("look")
    story.event("model.request", model="Qwen3.6-27B")
    story.after(12)
    assert "Qwen3.6-27B decides · 0:12" in rows(story)[0]
    story.event("model.response", model="Qwen3.6-27B", message={"content": "I look at \x1b[31mthe cards."}, calls=[])
    story.event("step.left", step="look")
    assert any("the cards" in line.text for line in story.kept)
