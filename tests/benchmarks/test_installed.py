"""What counts as installed: names out of a requirements file, packages' recorded files, npm's packages for the page."""

from __future__ import annotations

import json
from importlib.metadata import PathDistribution
from pathlib import Path

from benchmarks.installed import browser_packages, folder_bytes, package_bytes, required

REQUIREMENTS = """\
# compiled
anyio==4.16.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
colorama==0.4.6 ; sys_platform == 'elsewhere' \\
    --hash=sha256:cc
uvloop==0.23.0 ; sys_platform != 'elsewhere' \\
    --hash=sha256:dd
"""


def test_what_does_not_apply_here_is_not_required() -> None:
    assert required(REQUIREMENTS) == ["anyio", "uvloop"]


def test_a_package_weighs_what_its_recorded_files_do(tmp_path: Path) -> None:
    files = {"thing/code.py": 10, "thing/weights.gguf": 300, "thing/other.py": 5}
    for name, size in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "thing" / "not-recorded.py").write_bytes(b"x" * 1_000)
    info = tmp_path / "thing-1.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in [*files, "thing/gone.py"]))
    assert package_bytes([PathDistribution(info)]) == (15, 300)


def test_what_only_developers_need_is_left_out_of_npm(tmp_path: Path) -> None:
    packages = {"": {}, "node_modules/preact": {"version": "1"}, "node_modules/linter": {"version": "2", "dev": True}}
    (tmp_path / "package-lock.json").write_text(json.dumps({"packages": packages}))
    assert browser_packages(tmp_path) == [tmp_path / "node_modules" / "preact"]


def test_a_folder_weighs_no_compiled_python(tmp_path: Path) -> None:
    for name, size in {"a/code.py": 10, "a/b/page.js": 20, "a/code.pyc": 400}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    assert folder_bytes(tmp_path / "a") == 30
