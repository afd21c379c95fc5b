"""Our probes get from the lab what they would get from a real machine: the same keys, and the right values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab_engine.support import Lab, lab

from opsagent_lab.engine.probing import PROBES
from opsagent_tools import probes


@pytest.fixture
def it() -> Lab:
    return lab("Qwen/Qwen3-8B", cards=1)


def _ask(it: Lab, name: str, argument: dict[str, Any], *, stdin: str = "", python: str = "python3") -> dict[str, Any]:
    words = probes.command(name, argument, python=python).stages[0]
    code, out, err = it.call(*words, stdin=stdin.encode())
    assert code == 0, err
    value: dict[str, Any] = json.loads(out.splitlines()[-1])
    return value


def _real(name: str, argument: dict[str, Any], *, stdin: str = "") -> dict[str, Any]:
    words = [sys.executable, "-c", probes.script(name), json.dumps(argument)]
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=True)
    value: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return value


def test_every_probe_has_an_answer() -> None:
    folder = Path(probes.__file__).parent
    scripts = {p.stem for p in folder.glob("*.py") if p.read_text().startswith("# opsagent probe:")}
    assert scripts <= PROBES.keys(), "answer it in opsagent_lab/engine/probing.py"


def test_file_reads_writes_and_restores(it: Lab, tmp_path: Path) -> None:
    def both(argument: dict[str, Any], stdin: str = "") -> dict[str, Any]:
        here = {k: v.replace("/root", str(tmp_path)) if isinstance(v, str) else v for k, v in argument.items()}
        ours, theirs = _ask(it, "file", argument, stdin=stdin), _real("file", here, stdin=stdin)
        assert ours.keys() == theirs.keys()
        for key in ours.keys() - {"backup", "mode", "error"}:
            assert ours[key] == theirs[key], key
        return ours

    path = "/root/a.conf"
    assert both({"op": "read", "path": path}) == {"exists": False}
    written = both({"op": "write", "path": path, "mode": "0644", "expect": ""}, "one\n")
    assert written["created"] is True
    changed = both({"op": "write", "path": path, "expect": written["after"], "backup": "/root/backup"}, "two\n")
    assert changed["text"] == "one\n"
    refused = both({"op": "write", "path": path, "expect": written["after"]}, "three\n")
    assert "not what was expected" in refused["error"]
    assert both({"op": "read", "path": path, "limit": 100})["text"] == "two\n"
    _ask(it, "file", {"op": "restore", "path": path, "from": changed["backup"], "expect": changed["after"]})
    assert it.world.files(it.host).text(path) == "one\n"
    _ask(it, "file", {"op": "restore", "path": path, "from": None, "expect": None})
    assert not it.world.files(it.host).exists(path)


def test_a_job_runs_in_the_background_and_leaves_its_exit_code(it: Lab) -> None:
    spec = {
        "op": "start",
        "name": "opsagent-r-c1",
        "log": "/var/log/x.log",
        "cwd": "",
        "argv": ["uv", "venv", "/opt/n"],
    }
    started = _ask(it, "job", spec, stdin="{}")
    assert started["existing"] is False
    for _ in range(100):
        seen = _ask(it, "job", {"op": "status", "name": "opsagent-r-c1"})
        if seen["state"] == "exited":
            break
    assert (seen["state"], seen["exit_code"]) == ("exited", 0)
    assert "Creating virtual environment" in it.world.files(it.host).text("/var/log/x.log")
    assert _ask(it, "job", spec, stdin="{}")["existing"] is True
    assert _ask(it, "job", {"op": "status", "name": "other"})["state"] == "gone"
    assert "No such file" in _ask(it, "job", spec | {"name": "n2", "argv": ["/nowhere"]}, stdin="{}")["error"]


def test_a_job_is_prepared_and_stopped(it: Lab) -> None:
    files = it.world.files(it.host)
    ready = _ask(
        it, "job", {"op": "prepare", "name": "j", "log": "/var/log/s.log", "env_file": True}, stdin='{"A": "b"}'
    )
    assert files.text(ready["env_file"]) == 'A="b"\n'
    assert files.get(ready["env_file"]).mode == 0o600
    argv = ["/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "/srv/models/m"]
    _ask(it, "job", {"op": "start", "name": "s", "log": "/var/log/s.log", "argv": argv}, stdin="{}")
    for _ in range(500):
        members = _ask(it, "job", {"op": "status", "name": "s"})["members"]
        if len(members) == 3:
            break
    assert len(members) == 3
    assert sorted(_ask(it, "job", {"op": "signal", "name": "s", "signal": "KILL"})["members"]) == sorted(members)
    for _ in range(100):
        if not it.host.processes:
            break
        _ask(it, "job", {"op": "status", "name": "s"})
    assert _ask(it, "job", {"op": "status", "name": "s"})["exit_code"] == 137


def test_environments(it: Lab) -> None:
    found = _ask(it, "venvs", {"roots": ["/opt", "/root"], "depth": 3})["venvs"]
    assert [(v["path"], v["sglang"], v["torch"]) for v in found] == [("/opt/sglang", "0.5.11", "2.11.0")]
    built = _ask(it, "venv", {}, python="/opt/sglang/bin/python")
    assert built["devices"] == [{"name": "NVIDIA RTX A6000", "capability": "8.6"}]
    assert "sm_86" in built["arch_list"]
    assert built.keys() == _real("venv", {}).keys()
    it.host.driver.user = ""
    assert _ask(it, "venv", {}, python="/opt/sglang/bin/python")["available"] is False


def test_sockets_and_a_get(it: Lab) -> None:
    sim = it.start()
    it.until("ready to roll", sim)
    listeners = _ask(it, "net", {"op": "listen"})["listeners"]
    assert [(x["address"], x["port"], x["pid"]) for x in listeners] == [("127.0.0.1", 30000, sim.pid)]
    got = _ask(it, "net", {"op": "get", "url": "http://127.0.0.1:30000/v1/models", "timeout": 5})
    assert got["status"] == 200
    nobody = {"op": "get", "url": "http://127.0.0.1:9/", "timeout": 5}
    assert _ask(it, "net", nobody) == _real("net", nobody)


def test_a_model_directory_is_described_as_the_real_script_describes_it(tmp_path: Path) -> None:
    """The small files and the beginnings of the shards are written out; sparse files give them their real lengths."""
    name = "model-00002-of-00005.safetensors"
    it = lab("Qwen/Qwen3-8B", cards=1, truncated=(name,), missing=("model-00005-of-00005.safetensors",))
    files = it.world.files(it.host)
    for path, node in files.walk("/srv/models/m"):
        if node.kind == "file":
            with (tmp_path / Path(path).name).open("wb") as out:
                out.write(node.data)
                out.truncate(node.size)
    ours = _ask(it, "model_files", {"path": "/srv/models/m"})
    theirs = _real("model_files", {"path": str(tmp_path)})
    assert ours.keys() == theirs.keys()
    for key in ours.keys() - {"path", "free_bytes"}:
        assert ours[key] == theirs[key], key
    states = [shard["state"] for shard in ours["shards"]]
    assert states == ["", "truncated", "", "", "missing"]


def test_the_model_of_the_story_is_whole() -> None:
    told = _ask(lab(), "model_files", {"path": "/srv/models/m"})
    assert (told["tensors"], told["bytes"]) == (1199, 55_562_855_904)
    assert all(shard["state"] == "" for shard in told["shards"])
    assert _ask(lab(), "model_files", {"path": "/nowhere"})["found"] is False


def test_processes(it: Lab) -> None:
    sim = it.start()
    it.until("ready to roll", sim)
    found = _ask(it, "procs", {})["processes"]
    assert found[0].keys() == _real("procs", {})["processes"][0].keys()
    titles = [p["argv"][0] for p in found if p["parent"] == sim.pid]
    assert titles == ["sglang::scheduler", "sglang::detokenizer"]


def test_facts_for_the_gate(it: Lab, tmp_path: Path) -> None:
    files = it.world.files(it.host)
    files.write("/root/a.txt", "one")
    files.symlink("/root/a.txt", "/root/link")
    sim = it.start()
    it.until("ready to roll", sim)
    keys = [
        "path:/root/link",
        "path:/root/none/b",
        "sha:/root/a.txt",
        "exe:curl",
        "exe:nothing",
        "port:30000",
        "port:9",
    ]
    told = _ask(it, "facts", {"keys": [*keys, "gpus", f"pid:{sim.pid}", "pid:99999"]})["facts"]
    assert told["path:/root/link"]["real"] == "/root/a.txt"
    assert told["path:/root/none/b"] == {"real": "/root/none/b", "exists": False, "kind": ""}
    assert told["exe:curl"] == "/usr/bin/curl"
    assert told["exe:nothing"] is None
    assert (told["port:30000"]["free"], told["port:9"]["free"]) == (False, True)
    assert told["gpus"]["free"] is False
    assert told["pid:99999"] is None
    (tmp_path / "a.txt").write_text("one")
    here = _real("facts", {"keys": [f"path:{tmp_path}/a.txt", f"sha:{tmp_path}/a.txt", "port:9", "pid:1"]})["facts"]
    assert told["path:/root/link"].keys() == here[f"path:{tmp_path}/a.txt"].keys()
    assert told["sha:/root/a.txt"] == here[f"sha:{tmp_path}/a.txt"]
    assert told[f"pid:{sim.pid}"].keys() == here["pid:1"].keys()
