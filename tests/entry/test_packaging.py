"""The import package is whole, however it was installed; so is what would be uploaded; and it starts quickly."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE_ROOT = ROOT / "layers" / "entry" / "package"
IMPORT_MS = 200


def python(*args: str, cwd: Path = Path("/"), executable: str = sys.executable) -> list[str]:
    """The lines that a Python prints, started elsewhere, so that the checkout is not on its path."""
    done = subprocess.run([executable, *args], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def sources() -> set[str]:
    """Where each source file is inside the import package."""
    found: set[str] = set()
    for folder in ("core", "services", "layers"):
        for path in (ROOT / folder).rglob("*.py"):
            laid_over = PACKAGE_ROOT in path.parents
            found.add(str(path.relative_to(PACKAGE_ROOT)) if laid_over else f"stepwell/{path.relative_to(ROOT)}")
    return found | {"stepwell/py.typed"}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that is built from it, not from the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    python("-m", "hatchling", "build", "-t", "sdist", "-d", str(folder), cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        for member in archive:
            if content := archive.extractfile(member):
                path = folder / "from" / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
    (unpacked,) = (folder / "from").iterdir()
    python("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=unpacked)
    return folder


def names_in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_source_distribution_holds_every_source_and_its_tests(distributions: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    here = {
        p.relative_to(ROOT).as_posix()
        for d in ("core", "services", "layers", "tests")
        for p in (ROOT / d).rglob("*.py")
    }
    files = {"LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "run", ".ci/link_tree.py"}
    assert here | files <= packed
    assert not [name for name in packed if name.startswith((".dev", ".venv"))]


def test_the_wheel_holds_every_source_and_nothing_else(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    assert names_in_wheel(wheel) == sources()


def test_a_wheel_from_the_checkout_is_the_same(distributions: Path, tmp_path: Path) -> None:
    python("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path), cwd=ROOT)
    (one,), (two,) = distributions.glob("*.whl"), tmp_path.glob("*.whl")
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(two) as second:
        sums = [{entry.filename: entry.CRC for entry in archive.infolist()} for archive in (first, second)]
    assert sums[0] == sums[1]


def test_the_wheel_says_what_it_is(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        info = {name.partition(".dist-info/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
        metadata = message_from_string(archive.read(info["METADATA"]).decode())
        entry_points = archive.read(info["entry_points.txt"]).decode()
    assert (metadata["Name"], metadata["License-Expression"]) == ("stepwell", "Apache-2.0")
    assert "licenses/LICENSE" in info
    assert "stepwell = stepwell.layers.entry.cli:main" in entry_points
    assert "stepwell = _stepwell_pytest" in entry_points


def test_the_wheel_works_installed_in_a_folder_of_its_own(distributions: Path, tmp_path: Path) -> None:
    """Unpacked as an installer does, in an environment without the checkout; its requirements come from this one."""
    (wheel,) = distributions.glob("*.whl")
    environment = tmp_path / "venv"
    venv.create(environment, symlinks=True, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    requirements = Path(pytest.__file__).parents[1]
    code = f"import sys; sys.path.append({str(requirements)!r}); import stepwell; print(stepwell.__file__)"
    assert python("-c", code, executable=str(environment / "bin" / "python")) == [str(site / "stepwell/__init__.py")]


def test_an_editable_install_shows_every_source_as_it_is_in_the_checkout() -> None:
    """The links are to whole folders, so that a new module is seen at once; those of the package root are to files."""
    tree = ROOT / ".dev"
    assert {name for name in sources() if not (tree / name).is_file()} == set()
    assert (tree / "stepwell" / "core" / "model.py").samefile(ROOT / "core" / "model.py")


def test_laying_the_links_again_changes_nothing_and_drops_what_is_stale(tmp_path: Path) -> None:
    for folder in ("core", "services", "layers/entry/package/stepwell"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "layers/entry/package/stepwell/__init__.py").write_text("")
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "link_tree.py"
    script.write_text((ROOT / ".ci" / "link_tree.py").read_text("utf-8"))
    python(str(script))
    tree = tmp_path / ".dev" / "stepwell"
    before = {path.name: path.lstat().st_mtime_ns for path in tree.iterdir()}
    assert before.keys() == {"core", "services", "layers", "__init__.py"}
    (tree / "gone.py").symlink_to(tmp_path / "gone.py")
    python(str(script))
    assert {path.name: path.lstat().st_mtime_ns for path in tree.iterdir()} == before


def test_nothing_is_imported_by_a_bare_name() -> None:
    """Isolated and from elsewhere: a source that says `import core` would work in the checkout alone."""
    code = (
        "import pkgutil, sys, stepwell\n"
        "for m in pkgutil.walk_packages(stepwell.__path__, 'stepwell.'): '__main__' in m.name or __import__(m.name)\n"
        "print([n for n in ('core', 'services', 'layers') if n in sys.modules])"
    )
    assert python("-I", "-c", code) == ["[]"]


def test_importing_stepwell_is_quick() -> None:
    """The fastest of several starts: the others measure what else the machine is doing."""
    code = "import time; start = time.perf_counter(); import stepwell; print((time.perf_counter() - start) * 1000)"
    assert min(float(python("-I", "-c", code)[0]) for _ in range(5)) <= IMPORT_MS


def test_no_public_name_loads_the_command_line_or_a_test_runner() -> None:
    code = (
        "import sys; from stepwell import *\n"
        "print([name for name in ('click', 'rich', 'pytest', 'hypothesis', 'punq') if name in sys.modules])"
    )
    assert python("-I", "-c", code) == ["[]"]
