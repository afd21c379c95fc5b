"""uv, pip, hf, curl and python of the simulated hosts: words, exit codes and what they leave behind."""

from __future__ import annotations

import json
import posixpath
import threading
from typing import Any

import pytest
from lab_engine.support import Lab, lab

from opsagent_lab.engine import catalogue
from opsagent_lab.files import digest

REPO = "Qwen/Qwen3.6-27B"


def _lab(**settings: Any) -> Lab:
    return lab("Qwen/Qwen3-8B", cards=1, settings=settings)


# -- uv and pip


@pytest.mark.parametrize(("uv", "picked"), [("0.9.30", "0.5.9"), ("0.11.33", "0.5.9"), ("0.12.0", "0.5.23")])
def test_an_old_uv_silently_picks_an_old_sglang(uv: str, picked: str) -> None:
    it = _lab(uv={"version": uv})
    assert it.call("uv", "venv", "/opt/new", "--python", "3.12")[0] == 0
    code, _out, err = it.call("uv", "pip", "install", "--python", "/opt/new/bin/python", "sglang")
    assert code == 0
    assert f" + sglang=={picked}" in err
    assert it.call("/opt/new/bin/python", "-c", "import sglang; print(sglang.__version__)")[1] == f"{picked}\n"


def test_an_old_uv_cannot_pin_a_new_sglang_without_naming_the_pre_release() -> None:
    it = _lab(uv={"version": "0.11.33"})
    it.call("uv", "venv", "/opt/new")
    code, _out, err = it.call("uv", "pip", "install", "--python", "/opt/new", "sglang==0.5.11")
    assert code == 1
    assert "No solution found when resolving dependencies" in err
    assert "(try: `--prerelease=allow`)" in err
    named = it.call("uv", "pip", "install", "--python", "/opt/new", "sglang==0.5.11", "flash-attn-4>=4.0.0b9")
    assert named[0] == 0


def test_a_hashed_lock_is_installed_as_pinned() -> None:
    it = _lab(uv={"version": "0.11.33"})
    lock = "sglang==0.5.11 \\\n    --hash=sha256:00\ntorch==2.11.0 \\\n    --hash=sha256:11\n"
    it.world.files(it.host).write("/root/lock.txt", lock)
    it.call("uv", "venv", "/opt/new")
    words = ("uv", "pip", "install", "--python", "/opt/new", "--require-hashes", "-r", "/root/lock.txt")
    assert it.call(*words)[0] == 0
    assert it.host.venvs["/opt/new"].packages == {"sglang": "0.5.11", "torch": "2.11.0"}
    it.world.files(it.host).write("/root/lock.txt", "sglang==0.5.11\n")
    assert it.call(*words)[0] == 2


def test_uv_says_what_is_wrong() -> None:
    it = _lab()
    assert it.call("uv", "pip", "install", "sglang")[0] == 2
    assert it.call("uv", "frobnicate")[0] == 2
    assert it.call("uv", "venv", "/opt/new")[0] == 0
    again = it.call("uv", "venv", "/opt/new")
    assert again[0] == 2
    assert "already exists" in again[2]
    it.host.glibc = "2.31"
    assert "manylinux_2_34_x86_64" in it.call("uv", "pip", "install", "--python", "/opt/new", "sglang==0.5.11")[2]


def test_an_installation_needs_its_space_on_the_disk() -> None:
    it = _lab()
    it.call("uv", "venv", "/opt/new")
    it.host.disks[0].size = it.world.files(it.host).used(it.host.disks[0]) + 2**30
    code, _out, err = it.call("uv", "pip", "install", "--python", "/opt/new", "sglang==0.5.11")
    assert code == 1
    assert "No space left on device" in err
    assert it.host.venvs["/opt/new"].packages == {}


def test_pip_of_an_environment() -> None:
    it = _lab()
    assert it.call("/usr/bin/python3", "-m", "venv", "/opt/plain")[0] == 0
    assert it.call("/opt/plain/bin/python", "-m", "pip", "install", "-q", "sglang==0.5.11")[0] == 0
    assert "Version: 0.5.11" in it.call("/opt/plain/bin/pip", "show", "sglang")[1]
    assert it.call("/usr/bin/python3", "-m", "pip", "install", "sglang")[0] == 1


# -- hf and the hub


def _bytes(it: Lab, folder: str) -> int:
    return sum(node.size for _path, node in it.world.files(it.host).walk(folder) if node.kind == "file")


def test_a_download_stalls_where_the_scenario_says_and_a_new_one_ends_it() -> None:
    it = _lab(hub={"stall_at": 33 * 10**9, "stall_over": "xet"})
    sim = it.world.spawn(it.host, ["hf", "download", REPO, "--local-dir", "/srv/q"], env={}, log="/root/hf.log")
    seen = 0
    for _ in range(1500):  # a busy machine may hold the download up for a moment: only the stall is at 33 GB
        threading.Event().wait(0.02)
        seen = _bytes(it, "/srv/q") if it.world.files(it.host).is_dir("/srv/q") else 0
        if seen >= 33 * 10**9:
            break
    threading.Event().wait(0.2)
    seen = _bytes(it, "/srv/q")
    assert 33 * 10**9 <= seen < 36 * 10**9
    it.world.signal(it.host, sim.pid, 9)
    assert it.ended(sim) == 137
    left = [p for p, _n in it.world.files(it.host).walk("/srv/q") if p.endswith(".incomplete")]
    assert left
    again = it.call("hf", "download", REPO, "--local-dir", "/srv/q", env={"HF_HUB_DISABLE_XET": "1"})
    assert again[:2] == (0, "✓ Downloaded\n  path: /srv/q\n")
    assert set(left) <= {p for p, _n in it.world.files(it.host).walk("/srv/q")}
    names = set(it.world.files(it.host).listdir("/srv/q"))
    assert {f.name for f in catalogue.files_of(REPO)} <= names


def test_a_corrupt_body_is_accepted_and_found_by_its_hash() -> None:
    name = "model-00002-of-00005.safetensors"
    it = _lab(hub={"corrupt": [name]})
    assert it.call("hf", "download", "Qwen/Qwen3-8B", "--local-dir", "/srv/q")[0] == 0
    code, out, _err = it.call("hf", "cache", "verify", "Qwen/Qwen3-8B", "--local-dir", "/srv/q")
    assert code == 1
    assert name in out
    it.world.files(it.host).unlink(f"/srv/q/{name}")
    assert it.call("hf", "cache", "verify", "Qwen/Qwen3-8B", "--local-dir", "/srv/q")[0] == 0
    strict = it.call("hf", "cache", "verify", "Qwen/Qwen3-8B", "--local-dir", "/srv/q", "--fail-on-missing-files")
    assert strict[0] == 1
    assert it.call("hf", "download", "Qwen/Qwen3-8B", "--local-dir", "/srv/q")[0] == 0
    whole = next(f for f in catalogue.files_of("Qwen/Qwen3-8B") if f.name == name)
    assert digest(it.world.files(it.host).get(f"/srv/q/{name}")) == whole.sha256


@pytest.mark.parametrize(
    ("hub", "repo", "words"),
    [
        ({"status": 429}, "Qwen/Qwen3-8B", "429 Too Many Requests"),
        ({"status": 503}, "Qwen/Qwen3-8B", "503 Service Unavailable"),
        ({"status": 403}, "Qwen/Qwen3-8B", "Access denied. Model 'Qwen/Qwen3-8B' requires approval."),
        ({"gated": ["Qwen/Qwen3-8B"]}, "Qwen/Qwen3-8B", "requires approval"),
        ({}, "nobody/nothing", "Model 'nobody/nothing' not found."),
        ({"down": True}, "Qwen/Qwen3-8B", "Connection refused"),
        ({"truncate": ["model-00001-of-00005.safetensors"]}, "Qwen/Qwen3-8B", "Consistency check failed"),
    ],
)
def test_the_hub_refuses_in_its_own_words(hub: dict[str, Any], repo: str, words: str) -> None:
    it = _lab(hub=hub)
    code, _out, err = it.call("hf", "download", repo, "--local-dir", "/srv/q")
    assert code == 1
    assert words in err
    if not ({"gated", "down"} & hub.keys()) and hub:
        assert it.call("hf", "download", repo, "--local-dir", "/srv/q")[0] == 0


def test_without_a_hub_a_half_filled_folder_counts_as_downloaded() -> None:
    it = _lab(hub={"down": True})
    it.world.files(it.host).mkdir("/srv/q")
    it.world.files(it.host).write("/srv/q/config.json", "{}")
    code, _out, err = it.call("hf", "download", "Qwen/Qwen3-8B", "--local-dir", "/srv/q")
    assert code == 0
    assert "Returning existing local_dir" in err


def test_a_full_disk_ends_a_download() -> None:
    it = _lab()
    it.host.disks[0].size = it.world.files(it.host).used(it.host.disks[0]) + 5 * 10**9
    code, _out, err = it.call("hf", "download", "Qwen/Qwen3-8B", "--local-dir", "/srv/q")
    assert code == 1
    assert "[Errno 28] No space left on device" in err


def test_the_cache_has_blobs_and_links() -> None:
    it = _lab()
    code, out, _err = it.call("hf", "download", "-q", "Qwen/Qwen3-8B", "config.json", env={"HOME": "/root"})
    assert code == 0
    where = out.strip()
    assert where.startswith("/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/")
    assert json.loads(it.world.files(it.host).text(posixpath.join(where, "config.json")))["model_type"] == "qwen3"


def test_unknown_options_are_usage_errors() -> None:
    assert _lab().call("hf", "download", "Qwen/Qwen3-8B", "--resume-download")[0] == 2


# -- python and curl


@pytest.mark.parametrize(
    ("code", "out"),
    [
        ("import torch; print(torch.cuda.is_available(), torch.cuda.device_count())", "True 1\n"),
        ("import torch; print(torch.cuda.get_device_capability(0))", "(8, 6)\n"),
        ("from importlib.metadata import version; print(version('sglang'))", "0.5.11\n"),
        ("import sys; print(sys.version_info[0])", "3\n"),
        ("x = 2 * 3; print(f'{x}')", "6\n"),
    ],
)
def test_one_liners(code: str, out: str) -> None:
    assert _lab().call("/opt/sglang/bin/python", "-c", code) == (0, out, "")


def test_a_missing_module_is_an_import_error_and_strange_code_an_honest_refusal() -> None:
    it = _lab()
    code, _out, err = it.call("/usr/bin/python3", "-c", "import torch")
    assert code == 1
    assert err.endswith("ModuleNotFoundError: No module named 'torch'\n")
    for words in (["-c", "import os; os.system('rm -rf /')"], ["-c", "while True: pass"], []):
        code, out, err = it.call("/usr/bin/python3", *words)
        assert (code, out) == (70, "")
        assert err.startswith("lab: ")


def test_curl_names_its_failures() -> None:
    it = _lab()
    refused = it.call("curl", "-sS", "http://127.0.0.1:30000/health")
    assert refused[0] == 7
    assert "Failed to connect to 127.0.0.1 port 30000" in refused[2]
    assert it.call("curl", "-s", "http://127.0.0.1:30000/health") == (7, "", "")
    assert it.call("curl", "-sS", "http://nowhere.example/")[0] == 6
    assert it.call("curl", "--frobnicate", "http://127.0.0.1/")[0] == 2
    assert it.call("curl")[0] == 2


def test_curl_reads_a_header_from_its_configuration() -> None:
    it = _lab()
    it.until("ready to roll", it.start("--api-key", "sk-0123456789abcdef"))
    words = ("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:30000/v1/models")
    assert it.call(*words)[1] == "401"
    header = b'header = "Authorization: Bearer sk-0123456789abcdef"\n'
    assert it.call(*words, "--config", "-", stdin=header)[1] == "200"
    assert it.call("curl", "-sSf", "http://127.0.0.1:30000/nowhere")[0] == 22
