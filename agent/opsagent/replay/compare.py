"""Where two JSON values part, and how to say it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from opsagent.fence import neutral, without_nonces

VOLATILE: dict[str, frozenset[str]] = {
    "call.finished": frozenset({"duration_s", "output"}),
    "call.progress": frozenset({"done", "text"}),
    "approval.decided": frozenset({"policy", "expires"}),
}
"""Keys that may differ between a run and its replay, by event type. Nothing else may. (Nonces of fences may, too.)"""

ADDED: dict[str, frozenset[str]] = {
    "approval.requested": frozenset({"rollback"}),
    "approval.decided": frozenset({"policy", "args"}),
}
"""Keys that older recordings lack: not compared where the recorded event has none."""

MISSING = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two values part. `path` like `call.args.flags[3]`."""

    path: str
    left: Any
    right: Any

    def __str__(self) -> str:
        return f"{self.path or 'value'}: {shown(self.left)} ≠ {shown(self.right)}"


def shown(value: Any, most: int = 160) -> str:
    """A value on one line, safe to print."""
    if value is MISSING:
        return "(nothing)"
    text = neutral(json.dumps(value, ensure_ascii=False, default=str)).replace("\n", " ")
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def first_difference(left: Any, right: Any, path: str = "") -> Difference | None:
    """None when equal. Keys are compared in sorted order, so that the answer does not depend on theirs."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}, key=str):
            inner = f"{path}.{key}" if path else str(key)
            found = first_difference(left.get(key, MISSING), right.get(key, MISSING), inner)
            if found is not None:
                return found
        return None
    if isinstance(left, list) and isinstance(right, list):
        for index in range(max(len(left), len(right))):
            one = left[index] if index < len(left) else MISSING
            other = right[index] if index < len(right) else MISSING
            found = first_difference(one, other, f"{path}[{index}]")
            if found is not None:
                return found
        return None
    if isinstance(left, str) and isinstance(right, str) and left != right:
        return _texts(left, right, path)
    if left is right or (type(left) is type(right) and left == right):
        return None
    return None if _same_number(left, right) else Difference(path, left, right)


def _same_number(left: Any, right: Any) -> bool:
    """1 and 1.0 are one number (JSON does not tell them apart), True and 1 are not."""
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return numbers and not isinstance(left, bool) and not isinstance(right, bool) and left == right


def _texts(left: str, right: str, path: str) -> Difference:
    """Two long texts: shown from a little before the place where they part."""
    at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    start = max(0, at - 40)
    where = path if start == 0 else f"{path} (from character {start})"
    return Difference(where, left[start:], right[start:])


def as_old(recorded: dict[str, Any], type: str, made: dict[str, Any]) -> dict[str, Any]:
    """What is made today, without the keys that this recording is too old to have."""
    late = ADDED.get(type, frozenset()) - recorded.keys()
    return {key: value for key, value in made.items() if key not in late}


def comparable(type: str, data: dict[str, Any]) -> dict[str, Any]:
    """An event's data without what may differ."""
    drop = VOLATILE.get(type, frozenset())
    kept = {key: value for key, value in data.items() if key not in drop}
    return {**kept, "new": [_message(m) for m in kept["new"]]} if isinstance(kept.get("new"), list) else kept


def _message(message: Any) -> Any:
    if isinstance(message, dict) and isinstance(message.get("content"), str):
        return {**message, "content": without_nonces(message["content"])}
    return message
