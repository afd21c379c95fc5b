"""The shapes in which secrets come: tokens with a known prefix, headers, URLs, environment, options, key files.

Each rule marks the secret with the group `secret`; the rest of its match stays readable. Words that only look alike
(`bos_token`, `--max-total-tokens 4096`, `token usage: 0.5`, `api_key=None`) must pass, or logs become unreadable.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

_NOTHING = frozenset(
    ("none", "null", "true", "false", "yes", "no", "empty", "undefined", "unset", "default", "str", "string", "self")
)


def plausible(value: str) -> bool:
    """Whether a value in a secret's place is one: not empty, a placeholder, a reference, or already replaced."""
    bare = value.strip().strip("\"'")
    if not bare or bare.lower() in _NOTHING or set(bare) <= set("*.xX-_"):
        return False
    return not bare.startswith(("[redacted:", "${", "$(", "{", "[", "<", "(", "%("))


def _wordless(value: str) -> bool:
    """Whether a value is no word of prose: has a digit or mixed case, or is long."""
    return plausible(value) and (
        len(value) >= 20
        or any(c.isdigit() for c in value)
        or (value.lower() != value and value[1:].lower() != value[1:])
    )


def _not_a_count(value: str) -> bool:
    return plausible(value) and not re.fullmatch(r"[-+]?[\d.,]+%?", value)


def _prose(value: str) -> bool:
    return len(value) >= 6 and _wordless(value) and _not_a_count(value)


def _not_an_option(value: str) -> bool:
    return _not_a_count(value) and not value.startswith("-")


Accepts = Callable[[re.Match[str], str], bool]
"""`accepts(match, text)`: the last word on the marked value of the text; the match sees lower case where `folded`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One shape. It starts with something literal, so that a log of many megabytes is searched quickly."""

    name: str
    pattern: re.Pattern[str]
    accepts: Accepts = lambda found, text: plausible(_value(found, text))
    folded: bool = True
    """Search a copy in lower case: faster than ignoring case, and of the same length."""

    def apply(self, text: str, folded: str, marker: str, hits: Counter[str]) -> str:
        """The text with every accepted match marked, and counted."""
        pieces: list[str] = []
        end = 0
        for found in self.pattern.finditer(folded if self.folded else text):
            start, stop = found.span("secret")
            if start < end or not self.accepts(found, text):
                continue
            pieces += (text[end:start], marker)
            end = stop
            hits[self.name] += 1
        return text if not pieces else "".join((*pieces, text[end:]))


def _value(found: re.Match[str], text: str) -> str:
    return text[slice(*found.span("secret"))]


def folded(text: str) -> str:
    """The text with A to Z in lower case; every character keeps its place."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


_PREFIXED = r"""(?x)(?<![A-Za-z0-9])(?P<secret>
    hf_(?=[A-Za-z0-9]*[0-9A-Z])[A-Za-z0-9]{8,} | api_org_[A-Za-z0-9]{16,}
  | sk-(?:proj-|ant-|or-|svcacct-)?(?=[A-Za-z0-9_-]*[0-9])[A-Za-z0-9_-]{16,}
  | gh[pousr]_[A-Za-z0-9]{16,} | github_pat_[A-Za-z0-9_]{20,} | glpat-[A-Za-z0-9_-]{16,}
  | xox[abprs]-[A-Za-z0-9-]{10,} | nvapi-[A-Za-z0-9_-]{16,} | (?:AKIA|ASIA)[0-9A-Z]{16} | AIza[0-9A-Za-z_-]{30,}
  | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{30,} | dckr_pat_[A-Za-z0-9_-]{16,} | tskey-[A-Za-z0-9-]{12,}
  | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}
)"""
_KINDS_OF_KEY = re.compile(r"(?:api|access|secret|private|encryption|signing|client|account|admin|auth)[_-]?$")
_KINDS_OF_TOKEN = re.compile(
    r"(?:auth|access|api|bearer|refresh|session|secret|security|hf|hub|github|bot|vault|id|csrf)[_-]?$"
)
_WORD_BEFORE = re.compile(r"[A-Za-z0-9_.-]{0,64}$")
_VALUE = r"(?P<secret>(?<=\")[^\"\n]{1,4096}|(?<=')[^'\n]{1,4096}|(?<![\"'])[^\s\"'&,;)}\]|]{1,4096})"
_CORE = r"(?:key|secret|passw(?:or)?d|passphrase|pwd|credentials?|token)"
_NAMED = re.compile(rf"(?P<core>{_CORE})(?P<close>[\"'])?\s{{0,3}}(?P<sep>[=:])\s{{0,3}}(?:b?(?P<open>[\"']))?{_VALUE}")
"""A name, `=` or `:`, a value: environment, Python, JSON, YAML, headers."""


def _is_secret_name(before: str, core: str, sep: str) -> bool:
    """Whether the word before `=` or `:` names a secret. `bos_token` and `cache_key` do not."""
    low = before.lower()
    if core == "key":
        return _KINDS_OF_KEY.search(low) is not None
    if core == "token":
        return _KINDS_OF_TOKEN.search(low) is not None or low == "" or (sep == "=" and before.isupper())
    return True


def _named(found: re.Match[str], text: str) -> bool:
    core, sep, value = found["core"], found["sep"], _value(found, text)
    word = _WORD_BEFORE.search(text, max(0, found.start() - 64), found.start())
    before = word.group() if word else ""
    if not _is_secret_name(before, core, sep):
        return False
    accept = _not_a_count if core == "token" else plausible
    if sep == "=" or (found["close"] and found["open"]):
        return accept(value)
    if (
        core == "token"
        and not before
        and not found["close"]
        and found.start()
        and found.string[found.start() - 1] in " #-"
    ):
        return False
    return _prose(value)


SECRET_KEY = re.compile(
    r"(?i:(?:api|access|secret|private|encryption|signing|client|account|admin|auth)[_-]?key|secret|passw(?:or)?d"
    r"|passphrase|pwd|credentials?"
    r"|(?:auth|access|api|bearer|refresh|session|secret|security|hf|hub|github|bot|vault|id|csrf)[_-]?token)$"
    r"|^(?i:token|(?:proxy-)?authorization|cookie|set-cookie)$|^[A-Z0-9_]*TOKEN$"
)
"""A key of a mapping whose value is a secret, whatever it looks like."""
_FLAG = r"(?:[a-z0-9]+[-_]){0,6}(?:api[-_]?key|token|passw(?:or)?d|secret|passphrase|private[-_]key)"
SECRET_FLAG = re.compile(rf"--?{_FLAG}")
"""An option whose next argument is a secret."""


SUSPICIOUS = re.compile(
    "key|token|secret|passw|passphrase|pwd|credential|authorization|bearer|cookie|://|curl|auth=|sig"
    "|hf_|sk-|gh[pousr]_|github_pat|glpat|xox|nvapi|akia|asia|aiza|npm_|pypi-|dckr_|tskey|eyj|api_org_"
)
"""Something of this is in every (folded) text that a rule can match: most short texts are done with one search."""


def _on(check: Callable[[str], bool]) -> Accepts:
    return lambda found, text: check(_value(found, text))


RULES: tuple[Rule, ...] = (
    Rule("private-key", re.compile(r"private key-----(?P<secret>.*?)(?:-----end|\Z)", re.DOTALL)),
    Rule("token", re.compile(_PREFIXED), folded=False),
    Rule("authorization", re.compile(
        r"authorization[\"']?\s{0,3}[:=,]\s{0,3}[\"']?(?:(?:bearer|basic|token|digest|apikey)\s{1,3})?"
        r"(?P<secret>[^\s\"',]{4,8192})"), _on(_wordless)),
    Rule("bearer", re.compile(r"bearer\s{1,3}(?P<secret>[a-z0-9._~+/=-]{8,8192})"), _on(_wordless)),
    Rule("cookie", re.compile(r"cookie:\s{0,3}(?P<secret>[^\r\n\"']{4,8192})")),
    Rule("url", re.compile(
        r"://(?:[^\s/:@\"'\[]{0,256}:|(?=[^\s/:@]{20}))(?P<secret>[^\s/:@\"'\[\]]{1,1024})@(?=[\w\[])")),
    Rule("query", re.compile(
        r"[?&](?:api[-_]?key|key|token|access_token|auth|sig|signature|password|secret|x-amz-signature"
        r"|x-amz-credential|x-amz-security-token|key-pair-id)=(?P<secret>[^&\s\"'#<>]{4,4096})")),
    Rule("option", re.compile(
        rf"--(?<![\w-]--){_FLAG}(?:=|\s{{1,3}}|[\"']\s?,\s{{0,20}}(?=[\"']))[\"']?{_VALUE}"), _on(_not_an_option)),
    Rule("user", re.compile(
        r"curl\b[^\n]{0,400}?\s(?:-u|--user)[\s=]?[\"']?[^\s:\"']{1,128}:(?P<secret>[^\s\"']{1,256})")),
    Rule("named", _NAMED, _named),
)  # fmt: skip
