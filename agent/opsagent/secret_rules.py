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


@dataclass(frozen=True, slots=True)
class Rule:
    """One shape. `accepts` has the last word on the marked value; `hint`: one of these is in any text that can match."""

    name: str
    pattern: re.Pattern[str]
    accepts: Callable[[str], bool] = plausible
    hint: tuple[str, ...] = ()

    def apply(self, text: str, marker: str, hits: Counter[str]) -> str:
        """The text with every accepted match marked, and counted."""
        return self.pattern.sub(lambda found: self._replace(found, marker, hits), text)

    def _replace(self, found: re.Match[str], marker: str, hits: Counter[str]) -> str:
        if not self.accepts(found["secret"]):
            return found.group()
        hits[self.name] += 1
        start, end = found.span("secret")
        whole, offset = found.group(), found.start()
        return whole[: start - offset] + marker + whole[end - offset :]


_PREFIXED = r"""(?x)(?<![A-Za-z0-9])(?P<secret>
    hf_(?=[A-Za-z0-9]*[0-9A-Z])[A-Za-z0-9]{8,} | api_org_[A-Za-z0-9]{16,}
  | sk-(?:proj-|ant-|or-|svcacct-)?(?=[A-Za-z0-9_-]*[0-9])[A-Za-z0-9_-]{16,}
  | gh[pousr]_[A-Za-z0-9]{16,} | github_pat_[A-Za-z0-9_]{20,} | glpat-[A-Za-z0-9_-]{16,}
  | xox[abprs]-[A-Za-z0-9-]{10,} | nvapi-[A-Za-z0-9_-]{16,} | (?:AKIA|ASIA)[0-9A-Z]{16} | AIza[0-9A-Za-z_-]{30,}
  | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{30,} | dckr_pat_[A-Za-z0-9_-]{16,} | tskey-[A-Za-z0-9-]{12,}
  | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}
)"""
_NAMES = (
    r"(?:api|access|secret|private|encryption|signing|client|account|admin|auth)[_-]?key|apikey|secret|client[_-]?secret"
    r"|passw(?:or)?d|passphrase|pwd|credentials?"
)
_TOKENS = r"(?:auth|access|api|bearer|refresh|session|secret|security|hf|hub|github|bot|vault|id|csrf)[_-]?token"
_VALUE = r"(?P<secret>(?<=\")[^\"\n]{1,4096}|(?<=')[^'\n]{1,4096}|(?<![\"'])[^\s\"'&,;)}\]|]{1,4096})"
_EQUALS = r"[\"']?\s{0,3}=\s{0,3}(?:b?[\"'])?"
_COLON = r"[\"']?\s{0,3}:\s{0,3}(?:b?[\"'])?"

SECRET_KEY = re.compile(
    rf"(?:(?i:{_NAMES}|{_TOKENS})|^(?i:token)|^[A-Z0-9_]*TOKEN|^(?i:(?:proxy-)?authorization|cookie|set-cookie))$"
)
"""A key of a mapping whose value is a secret, whatever it looks like."""
SECRET_FLAG = re.compile(
    r"--?(?:[a-z0-9]+[-_]){0,6}(?:api[-_]?key|token|passw(?:or)?d|secret|passphrase|private[-_]key)"
)
"""An option whose next argument is a secret."""

_FLAG_TEXT = (
    r"(?<![\w-])--(?:[a-z0-9]+[-_]){0,6}(?:api[-_]?key|token|passw(?:or)?d|secret|passphrase|private[-_]key)"
    r"(?:=|\s{1,3}|[\"']\s?,\s{0,20}(?=[\"']))[\"']?" + _VALUE
)

RULES: tuple[Rule, ...] = (
    Rule("private-key", re.compile(
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?P<secret>.*?)(?:-----END|\Z)", re.DOTALL), hint=("PRIVATE KEY",)),
    Rule("token", re.compile(_PREFIXED)),
    Rule("authorization", re.compile(
        r"(?i)\b(?:proxy-)?authorization[\"']?\s{0,3}[:=,]\s{0,3}[\"']?"
        r"(?:(?:bearer|basic|token|digest|apikey)\s{1,3})?(?P<secret>[^\s\"',]{4,8192})"), _wordless),
    Rule("bearer", re.compile(r"(?i)\bbearer\s{1,3}(?P<secret>[A-Za-z0-9._~+/=-]{8,8192})"), _wordless),
    Rule("cookie", re.compile(r"(?i)\b(?:set-)?cookie:\s{0,3}(?P<secret>[^\r\n\"']{4,8192})")),
    Rule("url", re.compile(
        r"(?i)\b[a-z][a-z0-9+.-]{1,20}://(?:[^\s/:@\"'\[]{0,256}:|(?=[^\s/:@]{20}))"
        r"(?P<secret>[^\s/:@\"'\[\]]{1,1024})@(?=[\w\[])"), hint=("://",)),
    Rule("query", re.compile(
        r"(?i)[?&](?:api[-_]?key|key|token|access_token|auth|sig|signature|password|secret|x-amz-signature"
        r"|x-amz-credential|x-amz-security-token|key-pair-id)=(?P<secret>[^&\s\"'#<>]{4,4096})"), hint=("?", "&")),
    Rule("option", re.compile(_FLAG_TEXT), _not_an_option, hint=("--",)),
    Rule("user", re.compile(
        r"\bcurl\b[^\n]{0,400}?\s(?:-u|--user)[\s=]?[\"']?[^\s:\"']{1,128}:(?P<secret>[^\s\"']{1,256})"), hint=("curl",)),
    Rule("environment", re.compile(rf"(?<![A-Za-z0-9])(?:[A-Z0-9]+_){{0,8}}TOKEN{_EQUALS}{_VALUE}"), _not_a_count,
         hint=("TOKEN",)),
    Rule("assignment", re.compile(rf"(?i)(?:{_NAMES}){_EQUALS}{_VALUE}"), hint=("=",)),
    Rule("assignment", re.compile(rf"(?i)(?:{_TOKENS}|(?<![\w-])token){_EQUALS}{_VALUE}"), _not_a_count, hint=("=",)),
    Rule("field", re.compile(
        rf"(?i)(?P<quote>[\"'])(?:[\w.-]{{0,64}}(?:{_NAMES}|{_TOKENS})|token)(?P=quote)\s{{0,3}}:\s{{0,3}}b?(?=[\"'])[\"']{_VALUE}"),
        hint=(":",)),
    Rule("field", re.compile(rf"(?i)(?:{_NAMES}|{_TOKENS}|(?<![\w #-])token){_COLON}{_VALUE}"), _prose, hint=(":",)),
)  # fmt: skip
