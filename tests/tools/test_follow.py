"""What following a start tells while it goes: the line of the log that a person would look for."""

from __future__ import annotations

import pytest

from opsagent_tools.launch.follow import Log

BAR = b"\rMulti-thread loading shards:  73% Completed | 11/15 [00:32<00:11,  2.94s/it]"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ""),
        (b"[2026-01-01 00:00:01 TP0] Load weight begin. avail mem=46.80 GB\nnote\n" + BAR, "Load weight begin."),
        (b"[2026-01-01 00:00:01] Init torch distributed begin.\n" + BAR, "Init torch distributed begin."),
        (b"[2026-01-01 00:00:01 TP0] avail mem=1.0 GB\nTraceback (most recent\nValueError: bad flag\n", "ValueError"),
        (BAR, ""),
    ],
)
def test_the_last_words_decide_something_and_are_no_progress_bar(data: bytes, words: str) -> None:
    log = Log(data)
    assert words in log.last_words
    assert "Completed" not in log.last_words
    assert log.last_line
