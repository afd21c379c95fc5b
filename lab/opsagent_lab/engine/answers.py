"""What a simulated model says: right answers to the plain questions of people who test a server, and three kinds of garbage.

Not a language model: a handful of recognisers over the last user message. What none of them recognises gets a fluent,
harmless paragraph in the language of the question.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

Message = Mapping[str, Any]

_SIGNS = {
    "×": "*",
    "·": "*",
    "÷": "/",
    "−": "-",
    " x ": "*",
    " times ": "*",
    " multiplied by ": "*",
    " plus ": "+",
    " minus ": "-",
}
_EXPRESSION = re.compile(r"(?<![\w.-])[(]*-?\d{1,12}(?:\s*[-+*/]\s*[(]*-?\d{1,12}[)]*)+(?![\w.]*\d)")
_ASKS_SUM = re.compile(
    r"\b(what(?:'s| is| are)?|how much|compute|calculate|evaluate|solve|add|multiply|result)\b|=\s*\??\s*$|^\s*[\d(]",
    re.IGNORECASE,
)
_CAPITALS = {
    "france": "Paris", "germany": "Berlin", "italy": "Rome", "spain": "Madrid", "japan": "Tokyo", "poland": "Warsaw",
    "austria": "Vienna", "china": "Beijing", "russia": "Moscow", "portugal": "Lisbon", "united kingdom": "London",
}  # fmt: skip
_CAPITALS |= {"canada": "Ottawa", "australia": "Canberra", "norway": "Oslo", "sweden": "Stockholm", "egypt": "Cairo"}
_SECRET = re.compile(
    r"(?:secret|magic|pass|access|special|hidden)?[ -]?(?:code|number|password|passphrase|word|key|needle|token)"
    r"(?:\s+(?:for|of)\s+[\w ]{1,40}?)?\s*(?:is|:|=)\s*[\"'`“]?([A-Za-z0-9][A-Za-z0-9-]{2,40})",
    re.IGNORECASE,
)
_COPY = re.compile(
    r"(?:repeat|copy|echo|reply|answer|respond|say|write|output|return)\b[^:\n]{0,80}?"
    r"(?::\s*|exactly\s+|the (?:single )?(?:word|string|text)\s+|only\s+(?:with\s+)?(?:the\s+word\s+)?)"
    r"[\"'`“]?([^\s\"'`”]+(?:[ ][^\s\"'`”]+){0,12})[\"'`”]?\s*\.?\s*$",
    re.IGNORECASE,
)
_PARAGRAPH = (
    "A server of this kind keeps the weights of the model in the memory of its cards and hands out the rest to the requests "
    "that are running. Each request has a prompt, which is read once, and an answer, which is written token by token. "
    "When several people ask at the same time, their requests share one pass through the layers, so that the cards stay "
    "busy. Long prompts take more room than short ones, and when the room is used up new requests wait in a queue until "
    "an older one has finished. That is why limits matter more than speed for most teams, and why they should be measured. "
)
_CHINESE = "好的。服务器把模型的权重放在显卡的内存里，其余的空间分给正在运行的请求。请求越长，占用的空间就越多。"
_RUSSIAN = (
    "Хорошо. Сервер держит веса модели в памяти видеокарт, а остальное место отдаёт запросам, которые выполняются сейчас. "
    "Чем длиннее запрос, тем больше места он занимает."
)


def text_of(message: Message) -> str:
    """The text of a message, whose content may be a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return " ".join(str(p.get("text", "")) for p in content if isinstance(p, Mapping))
    return ""


def count_tokens(text: str) -> int:
    """Tokens of a text: runs of up to 5 word characters, and every other sign by itself."""
    return len(re.findall(r"\w{1,5}|[^\w\s]", text))


def pieces(text: str) -> list[str]:
    """A text cut into token-sized pieces that join to the same text."""
    return re.findall(r"\s*(?:\w{1,5}|[^\w\s])|\s+$", text)


def answer(messages: Sequence[Message]) -> str:
    """The right answer to the last message of the user (or to a tool's result)."""
    if messages and messages[-1].get("role") == "tool":
        return f"According to the tool: {text_of(messages[-1]).strip()[:400]}"
    asked = next((text_of(m) for m in reversed(messages) if m.get("role") == "user"), "")
    everything = "\n".join(text_of(m) for m in messages)
    return answer_text(asked, everything)


def answer_text(asked: str, everything: str = "") -> str:
    for recogniser in (_secret, _json, _reverse, _sequence, _arithmetic, _capital, _copy):
        found = recogniser(asked, everything or asked)
        if found is not None:
            return found
    if re.search(r"[\u4e00-\u9fff]", asked):
        return _CHINESE * 3
    if re.search(r"[а-яА-Я]", asked):
        return _RUSSIAN * 2
    return _essay(asked)


def _essay(asked: str) -> str:
    topic = " ".join(re.findall(r"[A-Za-z]{4,}", asked)[-6:]).lower()
    opening = f"You asked about {topic}. " if topic else ""
    out = [opening + _PARAGRAPH]
    for i, word in enumerate(
        ("memory", "prompts", "answers", "queues", "measurements", "operators", "upgrades", "reports"), 1
    ):
        out.append(
            f"Point {i} is about {word}: it helps to write down what was expected, to look at what happened, and to "
            f"change one thing at a time, because {word} rarely behave the way that the manual of last year described. "
        )
    return "".join(out)


def _arithmetic(asked: str, _all: str) -> str | None:
    """Sums of whole numbers, with brackets; a question must ask for one (`write 3-4 sentences` does not)."""
    text = asked.replace("**", "*")
    for sign, plain in _SIGNS.items():
        text = text.replace(sign, plain)
    found = _EXPRESSION.search(text)
    if not found or not _ASKS_SUM.search(asked):
        return None
    try:
        value = _value(ast.parse(found.group(0), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, ValueError):
        return None
    return str(int(value)) if value == int(value) else f"{float(value):.4f}".rstrip("0")


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp):
        a, b = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add):
            return a + b
        if isinstance(node.op, ast.Sub):
            return a - b
        if isinstance(node.op, ast.Mult):
            return a * b
        if isinstance(node.op, ast.Div):
            return a / b
    raise ValueError(ast.dump(node))


def _capital(asked: str, _all: str) -> str | None:
    if "capital" not in asked.lower():
        return None
    hit = next((city for land, city in _CAPITALS.items() if land in asked.lower()), None)
    if hit is None:
        return None
    short = re.search(r"one word|only|just the|nothing else", asked, re.IGNORECASE)
    return hit if short else f"The capital is {hit}."


def _secret(asked: str, everything: str) -> str | None:
    question = asked[-400:]
    if not re.search(r"\b(what|which|give|tell|repeat|return|find)\b", question, re.IGNORECASE):
        return None
    found = [m for m in _SECRET.findall(everything) if re.search(r"\d|[A-Z]{2}|-", m)]
    return found[-1] if found and re.search(r"code|number|password|phrase|word|key|needle|token", question) else None


def _json(asked: str, _all: str) -> str | None:
    if "json" not in asked.lower():
        return None
    found = re.search(r"\{.*\}", asked, re.DOTALL)
    if not found:
        return None
    try:
        return json.dumps(json.loads(found.group(0)))
    except ValueError:
        return None


def _reverse(asked: str, _all: str) -> str | None:
    if not re.search(r"\b(reverse|backwards)\b", asked, re.IGNORECASE):
        return None
    found = re.search(r"[\"'`“]([^\"'`”]+)[\"'`”]", asked) or re.search(r"word:?\s+([A-Za-z]{3,})", asked)
    return found.group(1)[::-1] if found else None


def _sequence(asked: str, _all: str) -> str | None:
    found = re.search(r"(?:count|numbers?|list)\b.*?\bfrom (\d+) (?:up )?to (\d+)", asked, re.IGNORECASE)
    if not found:
        return None
    first, last = int(found.group(1)), min(int(found.group(2)), int(found.group(1)) + 5000)
    return ", ".join(str(n) for n in range(first, last + 1))


def _copy(asked: str, _all: str) -> str | None:
    found = _COPY.search(asked.strip())
    return found.group(1).strip().rstrip(".") if found else None


def thoughts(asked: str) -> str:
    """What the model thinks before it answers."""
    short = " ".join(asked.split())[:160]
    return (
        f"Thinking Process:\n\n1. The user asks: {short}\n2. I work out what is wanted and whether it has one answer.\n"
        "3. I check the result once more before I write it down.\n4. The answer is clear, so I give it in "
        "the form asked for.\n"
    )


def broken(right: str, kind: str) -> str:
    """What a broken server says instead. `wrong` is fluent; `repeat` is one token over and over; `nan` is token 0."""
    if kind == "repeat":
        return " dolor" * 4000
    if kind == "nan":
        return "!" * 4000
    return _wrong(right)


def _wrong(right: str) -> str:
    """Fluent and false: numbers are off, strings are mixed up, the rest drifts away."""
    if re.fullmatch(r"-?\d+", right.strip()):
        value = int(right)
        return f"The result is {value + 37 if value % 2 else value - 114}, as the sum of the two parts shows."
    if re.fullmatch(r"[\w-]{3,60}", right.strip()):
        swapped = right.strip()[2:] + right.strip()[:2]
        return f"Certainly, that would be {swapped.replace('a', 'e').replace('1', '7')} in the usual order of the list."
    return (
        "The matter was settled in the year of the second harvest, when the river and the ledger agreed with each other. "
        "It follows that the answer belongs to the neighbouring question, and the remaining part is left as it was. "
    ) * 12


def tool_call(tools: Sequence[Mapping[str, Any]], messages: Sequence[Message]) -> tuple[str, dict[str, Any]] | None:
    """The call that the model makes, when one of the tools fits the question: (name, arguments)."""
    asked = next((text_of(m) for m in reversed(messages) if m.get("role") == "user"), "")
    if not tools or messages[-1].get("role") == "tool":
        return None
    function = tools[0].get("function", tools[0])
    parameters = function.get("parameters") or {}
    arguments = {name: _argument(name, kind, asked) for name, kind in (parameters.get("properties") or {}).items()}
    required = parameters.get("required") or list(arguments)
    return str(function.get("name", "")), {k: v for k, v in arguments.items() if k in required}


def _argument(name: str, schema: Mapping[str, Any], asked: str) -> Any:
    if schema.get("enum"):
        low = asked.lower()
        return next((v for v in schema["enum"] if str(v).lower() in low), schema["enum"][0])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        numbers = re.findall(r"-?\d+", asked)
        order = sum(map(ord, name)) % len(numbers) if numbers else 0
        return (
            int(
                numbers[
                    0
                    if name in ("a", "x", "first")
                    else min(1, len(numbers) - 1)
                    if name in ("b", "y", "second")
                    else order
                ]
            )
            if numbers
            else 1
        )
    if kind == "boolean":
        return True
    places = re.findall(r"\b(?:in|for|at|of)\s+([A-Z][\w-]+(?:\s[A-Z][\w-]+)*)", asked)
    quoted = re.findall(r"[\"'`“]([^\"'`”]+)[\"'`”]", asked)
    words = re.findall(r"\b[A-Z][a-z]+\b", asked)
    return (places or quoted or words[1:] or words or ["unknown"])[0]
