"""Secrets in every shape they come in are replaced; words that look alike are not."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsagent.redact import Redactor

S = "supersecretvalue"
LEAKS = [
    f"HF_TOKEN=hf_AbCdEfGhIjKlMn{S}",
    "export OPENAI_API_KEY='sk-proj-supersecretvalue0123456789'",
    f"python -m sglang.launch_server --api-key {S} --port 30000",
    f"root 4121 1 python3 -m sglang.launch_server --model x --api-key={S} --host 0.0.0.0",
    f'["--api-key", "{S}", "--port", "1"]',
    f"['--hf-token', '{S}']",
    f"--admin-api-key={S}",
    f"/proc/4121/cmdline: --api-key\n{S}\n--port",
    f"ServerArgs(model_path='x', api_key='{S}', admin_api_key=None, ssl_keyfile_password='{S}')",
    f'{{"api_key":"{S}","random_seed":123}}',
    f"{{'api_key': '{S}'}}",
    f"Authorization: Bearer {S}123",
    f"authorization: Basic {S}1==",
    f"curl -H 'Authorization: Bearer {S}1' http://x",
    f"curl -u root:{S} http://x",
    f"https://user:{S}@host/x",
    f"pip install --index-url https://__token__:{S}@pypi.example/simple",
    f"https://host/x?api_key={S}&y=1",
    f"https://bucket/x?X-Amz-Credential={S}&X-Amz-Signature={S}",
    f"git clone https://ghp_{S}0123456789@github.com/x",
    f"password: {S}1",
    f"MY_SECRET_TOKEN={S}",
    f"FOO_TOKEN={S}",
    f"export GITLAB_RUNNER_TOKEN='{S}'",
    f"client_secret: {S}1",
    f"HUGGING_FACE_HUB_TOKEN={S}",
    f"x-api-key: {S}1",
    f"DB_PASSWORD={S}",
    f"Set-Cookie: session={S}; Path=/",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{S}\n-----END OPENSSH PRIVATE KEY-----",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{S}.abc{S}",
]
HARMLESS = [
    "bos_token='<s>' eos_token_id=1 pad_token=<pad>",
    "eos_token=<|im_end|> image_token='<image>' cache_key=abcdef012345",
    "primary key: 12345678abc, partition_key=deadbeef01",
    "--speculative-num-draft-tokens 2 --max-total-tokens 4096",
    "token usage: 0.5, #new-token: 12, #cached-token: 0",
    "api_key=None, admin_api_key=None, tool_call_parser='qwen3_coder'",
    "max_total_num_tokens=126723",
    "tokenizer_path='/srv/x', skip_tokenizer_init=False",
    "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "hf_transfer hf_hub_download hf_xet hf_overrides",
    "api_key: {type: str, secret: true}",
    '{api_key: "${api_key}"}',
    "Bearer authentication is needed; Authorization required",
    "http://127.0.0.1:30000/v1 and ssh://root@kpro5/x and root@kpro5:/etc",
    "OPENAI_API_KEY=EMPTY",
    "The password must be given. The secret: a longer context.",
]


@pytest.mark.parametrize("text", LEAKS)
def test_a_secret_is_replaced_once_and_for_all(text: str) -> None:
    redactor = Redactor()
    safe, hits = redactor.text(text)
    assert S not in safe
    assert sum(hits.values()) >= 1
    assert redactor.text(safe) == (safe, {})


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_words_pass(text: str) -> None:
    assert Redactor().text(text)[0] == text


def test_structure_tells_too() -> None:
    value = {
        "env": {"HF_TOKEN": "plain words", "PATH": "/bin"},
        "argv": ["python", "--api-key", "plain", "--max-total-tokens", "4096", "--token", "--port"],
        "Authorization": "plain",
        "api_key": None,
        "tokens": {"in": 1},
    }
    assert Redactor().value(value)[0] == {
        "env": {"HF_TOKEN": "[redacted:secret]", "PATH": "/bin"},
        "argv": ["python", "--api-key", "[redacted:secret]", "--max-total-tokens", "4096", "--token", "--port"],
        "Authorization": "[redacted:secret]",
        "api_key": None,
        "tokens": {"in": 1},
    }


@settings(max_examples=150, deadline=None)
@given(
    st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40),
    st.binary(max_size=5),
    st.binary(max_size=5),
)
def test_a_known_secret_in_any_coding(secret: str, before: bytes, after: bytes) -> None:
    redactor = Redactor({"KEY": secret})
    if redactor.text(secret)[0] == secret:
        return  # a placeholder such as ******** or none
    raw = before + secret.encode() + after
    coded = base64.b64encode(raw).decode()
    whole = Redactor({"KEY": secret}).data(raw)[0]
    assert secret.encode() not in whole
    assert secret not in json.dumps(redactor.value({secret: [secret]})[0])
    assert redactor.text(json.dumps(secret))[0] != json.dumps(secret)
    assert redactor.text(coded)[0] != coded
    assert redactor.text(secret.encode().hex())[0] != secret.encode().hex()


def test_a_known_secret_that_was_cut_in_two() -> None:
    redactor = Redactor({"KEY": "s3cr3t-Value-9876-abcdef"})
    assert redactor.clean("the log ends with s3cr3t-Value-987") == "the log ends with [redacted:KEY]"
    assert redactor.clean("alue-9876-abcdef and goes on") == "[redacted:KEY] and goes on"
    assert redactor.clean("a\ns3cr3t-Value-98\n… [12 bytes left out] …\n76-abcdef x").count("s3cr3t") == 0


def test_a_key_file_is_a_secret_line_by_line() -> None:
    redactor = Redactor()
    redactor.add("-----BEGIN X-----\nAAAAB3NzaC1yc2EAAAADAQ\nBBBBB3NzaC1yc2EAAAADAQ\n-----END X-----", "id_rsa")
    assert redactor.clean("grep: BBBBB3NzaC1yc2EAAAADAQ") == "grep: [redacted:id_rsa]"


def test_placeholders_and_short_values_are_not_secrets() -> None:
    redactor = Redactor({"A": "EMPTY", "B": "none", "C": "12", "D": "${HF_TOKEN}"})
    assert redactor.clean("EMPTY none 12 ${HF_TOKEN}") == "EMPTY none 12 ${HF_TOKEN}"


def test_a_value_that_begins_like_its_name() -> None:
    redactor = Redactor({"OPENAI_API_KEY": "OPENAI_API_KEY_value_1"})
    assert redactor.clean("x OPENAI_API_KEY_value_1 y") == "x [redacted:OPENAI_API_KEY] y"


def test_marks_are_left_alone_and_cannot_be_forged() -> None:
    redactor = Redactor({"password": "password", "KEY": "s3cr3t-Value"})
    safe = redactor.clean("password s3cr3t-Value")
    assert safe == "[redacted:password] [redacted:KEY]"
    assert redactor.clean(safe) == safe
    assert redactor.clean("[redacted:s3cr3t-Value]") == "[redacted:[redacted:KEY]]"


def test_a_secret_reads_alike_in_text_and_in_structure() -> None:
    args = {"flags": ["--api-key", "plain1"], "env": {"HF_TOKEN": "plain2"}, "url": "http://u:plain3@h/x"}
    redactor = Redactor()
    assert json.loads(redactor.clean(json.dumps(args))) == redactor.value(args)[0]
