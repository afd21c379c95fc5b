"""Configurations that are not as they should be: a plan or one clear InputError, never a traceback."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner.records import DATA

from opsagent_tools.errors import InputError
from opsagent_tools.sglang.gpus import GpuFacts, capability_of, parse_gpu
from opsagent_tools.sglang.plan import Plan
from opsagent_tools.sglang.planner import plan

MODELS = sorted(path.name for path in (DATA / "models").iterdir())
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**9), st.text(max_size=3), st.just([]), st.just({}), st.just(0)
)
CARDS = GpuFacts("RTX A6000", 49140, 2)


def config_of(model: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((DATA / "models" / model / "config.json").read_text())
    return value


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(MODELS), st.data())
def test_one_broken_field(model: str, data: st.DataObject) -> None:
    """One field is missing or nonsense, at the top or in the text or vision part."""
    config = copy.deepcopy(config_of(model))
    parts = [config, *(value for value in config.values() if isinstance(value, dict))]
    part = data.draw(st.sampled_from(parts))
    if not part:
        return
    key = data.draw(st.sampled_from(sorted(part)))
    if data.draw(st.booleans()):
        del part[key]
    else:
        part[key] = data.draw(JUNK)
    try:
        found = plan(config, gpus=CARDS, flags=["--tp", "2"], sglang="0.5.11", advise=False)
    except InputError:
        return
    assert isinstance(found, Plan)


@pytest.mark.parametrize("field", ["layer_types", "mamba_d_state"])
def test_a_hybrid_without_recurrent_layers_or_without_state_is_no_division_by_zero(field: str) -> None:
    model = next(name for name in MODELS if config_of(name).get("architectures") == ["GraniteMoeHybridForCausalLM"])
    config = config_of(model)
    config[field] = True if field == "layer_types" else 0
    try:
        found = plan(config, gpus=CARDS, flags=["--tp", "2"], sglang="0.5.11", advise=False)
    except InputError:
        return
    assert found.architecture == "GraniteMoeHybridForCausalLM"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_every_model_in_every_version(model: str, version: str) -> None:
    found = plan(
        config_of(model), gpus=GpuFacts("NVIDIA B200", 183359, 8), flags=["--tp", "4"], sglang=version, advise=False
    )
    assert found.verdict in ("fits", "fails")
    assert found.verdict == "fits" or found.cause


@pytest.mark.parametrize("text", ["", "A6000", ":49140", "A6000:", "A6000:x", "A6000:-5", "A6000:nan", "A6000:1e99"])
def test_a_card_without_memory(text: str) -> None:
    with pytest.raises(InputError):
        parse_gpu(text, 1)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA RTX A6000", (8, 6)), ("NVIDIA RTX 6000 Ada Generation", (8, 9)), ("NVIDIA GeForce RTX 4090", (8, 9)),
        ("NVIDIA GeForce RTX 3090", (8, 6)), ("NVIDIA A100-SXM4-80GB", (8, 0)), ("NVIDIA H100 80GB HBM3", (9, 0)),
        ("NVIDIA H200", (9, 0)), ("NVIDIA B200", (10, 0)), ("NVIDIA GB10", (12, 1)), ("NVIDIA GeForce RTX 5090", (12, 0)),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0)), ("NVIDIA L40S", (8, 9)), ("Tesla T4", (7, 5)),
        ("NVIDIA L20", (8, 9)), ("NVIDIA H20", (9, 0)), ("Unheard Of", None),
    ],
)  # fmt: skip
def test_capabilities(name: str, capability: tuple[int, int] | None) -> None:
    assert capability_of(name) == capability
