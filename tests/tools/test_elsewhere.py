"""preflight for a host without SGLang, or without a card: judged by an SGLang of this machine, and said so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hosts.pretend import Machine, machine
from lab_target import Target, target

from opsagent_tools import elsewhere, launch_sglang
from opsagent_tools.errors import ToolFailed
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.launch_sglang import LaunchSglangArgs
from opsagent_tools.preflight import PreflightArgs, PreflightResult, run
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.tool import Context

BARE = 'models."/srv/models/m" = { repo = "Qwen/Qwen3-8B" }\n'


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Stands for the environment of this machine: the real one takes gigabytes."""
    return machine(tmp_path_factory.mktemp("here"))


@pytest.fixture
def known(here: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("OPSAGENT_SGLANG_0_5_11", str(here.python))


def ask(at: Target, flags: str, **more: Any) -> PreflightResult:
    return run(
        at.host,
        PreflightArgs(model="/srv/models/m", python="/opt/sglang/bin/python", flags=flags.split(), **more),
        at.ctx(),
    )


@pytest.mark.usefixtures("known")
def test_flags_for_a_host_without_sglang(tmp_path: Path) -> None:
    with target(tmp_path, BARE) as at:
        seen = ask(at, "--tp-size 2")
        assert (seen.accepted, seen.sglang, seen.gpus_visible, seen.gpus_needed) == (True, "0.5.11", 2, 2)
        assert "opsagent's machine" in seen.judged
        assert "2 x RTX A6000" in seen.judged
        assert (seen.kernels_fit, seen.torch) == (None, None), "of them nothing is known"
        assert any("NVIDIA RTX A6000 2 /srv/models/m" in note for note in seen.notes), (
            "the host's cards and the model's path"
        )
        bad = ask(at, "--tool-call-parser qwen3_codr")
        assert (bad.accepted, bad.cause) == (False, "invalid-flag-value")
        assert "invalid choice" in bad.words
        with pytest.raises(ToolFailed, match=r"cannot judge|did not answer"):
            ask(at, "--tp-size 2", elsewhere=False)
        with pytest.raises(ToolFailed):
            ask(at, "--tp-size 2", sglang="0.5.9")


@pytest.mark.usefixtures("known")
def test_a_launch_is_not_judged_elsewhere(tmp_path: Path) -> None:
    with target(tmp_path, BARE) as at:
        args = LaunchSglangArgs(model="/srv/models/m", python="/opt/sglang/bin/python")
        with pytest.raises(ToolFailed):
            launch_sglang.run(at.host, args, at.ctx())
        assert at.lab.snapshot()["gpu1"]["counters"].get("launches", 0) == 0


@pytest.mark.usefixtures("known")
def test_flags_for_a_machine_without_a_card(here: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    args = PreflightArgs(
        model=str(here.model), python="/no/such/python", gpu="RTX A6000:49140", num_gpus=2, flags=["--tp-size", "2"]
    )
    seen = run(LocalHost(), args, Context())
    assert (seen.accepted, seen.driver_ok) == (True, False)
    assert "2 x RTX A6000" in seen.judged


def test_which_one_is_found(tmp_path: Path) -> None:
    for version in ("0.5.9", "0.5.10"):
        (tmp_path / "opsagent" / f"sglang-{version}" / "bin").mkdir(parents=True)
        (tmp_path / "opsagent" / f"sglang-{version}" / "bin" / "python").touch()
    env = {"XDG_DATA_HOME": str(tmp_path), "OPSAGENT_SGLANG_0_5_12": "/x/python"}
    assert elsewhere.find("0.5.9", env) == (str(tmp_path / "opsagent/sglang-0.5.9/bin/python"), "0.5.9")
    assert elsewhere.find("0.5.12", env) == ("/x/python", "0.5.12")
    assert elsewhere.find("", env) == ("/x/python", "0.5.12"), "the newest, by number and not by letter"
    assert elsewhere.find("0.5.11", env) is None
    assert elsewhere.find("", {"XDG_DATA_HOME": str(tmp_path / "none")}) is None


def test_a_card_of_which_nothing_is_known() -> None:
    with pytest.raises(ToolFailed, match="generation"):
        elsewhere.pretended(GpuFacts("Quantum 9", 1000.0))
