"""`null` compares with everything in checks: a result that is not there yet is null, one that is there is a map."""

from __future__ import annotations

from typing import Any

import pytest

from opsagent.runbook.expr import evaluate


@pytest.mark.parametrize("value", [{"x": 1}, [1], 3, 1.5, "s", True])
def test_nothing_that_is_there_equals_null(value: Any) -> None:
    assert evaluate("a != null", {"a": value}) is True
    assert evaluate("null == a", {"a": value}) is False


def test_null_equals_null() -> None:
    assert evaluate("a == null", {"a": None}) is True
    assert evaluate("a == null || a.x == 1", {"a": None}) is True
