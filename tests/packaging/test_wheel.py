"""What a user gets from `pip install`: the wheel as built from this tree, seen from outside and used in awkward places."""

from __future__ import annotations

import ast
import configparser
import email
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PACKAGES = {"ipyagent", "ipyagent_lab", "ipyagent_sessions"}


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    """The output of a command that has to succeed; on failure the test shows all that it said."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8", **environ},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_wheel(source: Path, into: Path) -> Path:
    """Without isolation, thus without a network: the test extra brings the build backend."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel")
    run(*pip, source, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", into, cwd=into)
    [wheel] = into.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    return email.message_from_string(read_info(wheel, "METADATA"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel installed below a folder whose name has a space, Chinese and a letter with an accent."""
    target = tmp_path_factory.mktemp("install") / "项目 测试" / "é"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install")
    run(*pip, "--no-deps", "--no-index", "--target", target, wheel, cwd=target.parents[1])
    return target


def read_info(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        [path] = [n for n in archive.namelist() if n.endswith(f".dist-info/{name}")]
        return archive.read(path).decode()


def test_the_wheel_holds_three_packages_and_no_more(names: list[str]) -> None:
    tops = {PurePosixPath(name).parts[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == PACKAGES


def test_every_package_has_an_init_and_says_that_it_is_typed(names: list[str]) -> None:
    expected = {f"{package}/{name}" for package in PACKAGES for name in ("__init__.py", "py.typed")}
    assert expected - set(names) == set()


def test_the_wheel_carries_no_tests_and_no_build_leftovers(names: list[str]) -> None:
    unwanted = {"tests", "__pycache__", "node_modules", "src", ".yarn"}
    assert [name for name in names if unwanted & set(PurePosixPath(name).parts)] == []


def test_the_front_end_bundle_is_not_in_a_package_as_well(names: list[str]) -> None:
    """It belongs to share/jupyter, where the front ends look; a second copy would be dead weight that goes stale."""
    assert [name for name in names if name.startswith("ipyagent_lab/labextension/")] == []


@pytest.mark.skipif("SKIP_JUPYTER_BUILDER" in os.environ, reason="a wheel of Python alone has no front end")
def test_the_view_of_a_widget_travels_with_the_package_that_shows_it(names: list[str]) -> None:
    assert {"ipyagent/static/task.js", "ipyagent/static/task.css"} - set(names) == set()


def test_the_wheel_installs_the_ipyagent_command(wheel: Path) -> None:
    scripts = configparser.ConfigParser()
    scripts.read_string(read_info(wheel, "entry_points.txt"))
    assert dict(scripts["console_scripts"]) == {"ipyagent": "ipyagent_sessions.cli:main"}


def test_the_metadata_agrees_with_the_code_about_the_version(metadata: Message, installed: Path, tmp_path: Path) -> None:
    code = "from ipyagent_sessions._version import __version__; print(__version__)"
    assert run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed)).strip() == metadata["Version"]


def test_the_licence_travels_with_the_wheel(metadata: Message, names: list[str]) -> None:
    assert metadata["License-Expression"] == "MIT"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_sdist_builds_the_same_wheel(names: list[str], tmp_path: Path) -> None:
    """A distributor builds from the sdist: what it leaves out is missing there and nowhere else."""
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path, cwd=ROOT)
    [sdist] = tmp_path.glob("*.tar.gz")
    (tmp_path / "wheel").mkdir()
    with zipfile.ZipFile(build_wheel(sdist, tmp_path / "wheel")) as archive:
        assert sorted(archive.namelist()) == sorted(names)


def test_files_of_the_user_beside_the_notebook_shadow_nothing(installed: Path, tmp_path: Path) -> None:
    """IPython looks into the notebook's folder before it looks at installed packages."""
    for name in ("sessions", "kernel_ext", "labextension", "log", "state", "events", "errors", "run", "store"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of the user was imported')\n", encoding="utf-8")
    code = "import ipyagent, ipyagent_lab, ipyagent_sessions as s; print(s.__file__)"
    found = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed)).strip()
    assert Path(found).is_relative_to(installed)


def test_the_command_starts_from_a_folder_with_spaces_and_foreign_letters(installed: Path) -> None:
    here = installed / "ipyagent_sessions"
    code = "import sys; from ipyagent_sessions.cli import main; sys.exit(main(['--help']))"
    assert "usage" in run(sys.executable, "-c", code, cwd=here.parents[1], PYTHONPATH=str(installed)).lower()


def test_every_import_is_a_declared_dependency(installed: Path, metadata: Message) -> None:
    """An import at the top of a module needs a dependency, one further inside may rest on an extra."""
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    declared = {canonicalize_name(r.name) for r in requirements}
    always = {canonicalize_name(r.name) for r in requirements if r.marker is None or "extra" not in str(r.marker)}
    providers = packages_distributions()
    undeclared = [
        f"{file.relative_to(installed)}: {module}"
        for package in sorted(PACKAGES)
        for file in sorted((installed / package).rglob("*.py"))
        for module, at_top in imports(file)
        if not {canonicalize_name(p) for p in providers.get(module, [module])} & (always if at_top else declared)
    ]
    assert undeclared == []


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """Each foreign top-level module that `file` imports, and whether merely importing `file` imports it."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found = [node.module]
        else:
            continue
        for module in {name.partition(".")[0] for name in found} - sys.stdlib_module_names - PACKAGES:
            yield module, node in tree.body


@pytest.mark.skipif("IPYAGENT_TEST_INSTALLED" not in os.environ, reason="`make test` sets it: there the wheel is installed")
@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_the_tests_meet_the_installed_wheel_and_not_the_sources(package: str) -> None:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    assert "site-packages" in Path(spec.origin).parts
