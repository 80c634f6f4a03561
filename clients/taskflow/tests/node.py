"""The node of the tests: CONDUCTORD_SERVER names it. test/taskflow_test.go starts one."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import sys
import tempfile
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
SERVER = os.environ.get("CONDUCTORD_SERVER", "")


def install() -> None:
    """Make both packages importable, with the entry points of pyproject.toml, as pip would."""
    sys.path[:0] = [str(ROOT), str(ROOT.parent / "python")]
    if any(d.metadata["Name"] == "conductord-taskflow" for d in importlib.metadata.distributions()):
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="conductord-taskflow-"))
    info = folder / "conductord_taskflow-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: conductord-taskflow\nVersion: 0.1.0\n")
    lines, wanted = [], False
    for line in (ROOT / "pyproject.toml").read_text().splitlines():
        if line.startswith("["):
            wanted = line.startswith("[project.entry-points.")
            line = "[%s]" % line.split('"')[1] if wanted else ""
        if wanted:
            lines.append(line.replace('"', ""))
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    sys.path.insert(0, str(folder))


def new_board() -> str:
    """The name of a board that no other test uses."""
    return "test-" + uuid.uuid4().hex[:12]


install()
