"""The documents name what is there, and keep their form."""

import functools
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from simsd.cli.main import build_parser

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("training/*.md"), *ROOT.glob("simsd/assets/*.md")]
)
GENERATED = ROOT / "docs" / "results"
WRITTEN = [page for page in PAGES if GENERATED not in page.parents]
COLUMNS = 100
NOT_YET_WRAPPED: set[str] = set()
README_LINES = 130


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_wrapped(page: Path) -> None:
    """Tables, code and the targets of links may be longer."""
    if page.name in NOT_YET_WRAPPED:
        pytest.skip("not wrapped yet")
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    lines = [re.sub(r"\]\([^)]*\)", "]", line) for line in prose.splitlines() if not line.startswith("|")]
    assert not [line for line in lines if len(line) > COLUMNS]


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < README_LINES


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    """What stands in code marks and looks like a path of the repository. A citation is a file here, or the paper."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    named = re.findall(r"`((?:simsd\w*|deployments|training|tests|protos|k8s|docs)/[\w./-]*)`", text)
    assert not [name for name in named if not (ROOT / name).exists()]
    assert not re.findall(r"(?<!/)\b(?:paper|DESIGN)\.md\b(?!\])", re.sub(r"\]\([^)]*\)", "]", text))


def test_commands_have_the_options_that_documents_name(capsys: pytest.CaptureFixture[str]) -> None:
    parser, modules = build_parser()

    @functools.cache
    def options(command: tuple[str, ...]) -> set[str]:
        with pytest.raises(SystemExit) as end:
            parser.parse_args([*command, "--help"])
        assert end.value.code == 0
        return set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))

    checked = 0
    for page in WRITTEN:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for name, what, rest in re.findall(r"\bsimsd ([a-z]+)(?: ([a-z]+))?\b([^`#|\n]*)", text):
            if name not in modules:
                continue
            named = set(re.findall(r"--[a-z][a-z-]+", rest))
            assert named <= options((name, what) if name == "bench" and what else (name,)), f"{page.name}: simsd {name}"
            checked += len(named)
    assert checked > 50


def test_the_map_of_files_is_whole_and_true() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = text.split("## Map of files")[1].split("```")[1]
    named, folder = set(), ""
    for line in block.strip().splitlines():
        head = re.split(r" {3,}", line.strip())[0]
        if not line.startswith(" "):
            folder = head.split()[0]
            named |= {ROOT / name for name in head.split()}
        else:
            named |= {ROOT / folder / name for name in head.split()}
    assert not sorted(str(path) for path in named if not path.exists())
    for package in ("simsd", "deployments"):
        inside = [
            path for path in (ROOT / package).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
        ]
        files = {path for path in inside if path.name != "__init__.py"}
        assert not sorted(str(path.relative_to(ROOT)) for path in files - named)


def test_readme_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert "Paris" in capsys.readouterr().out


def test_every_dependency_has_its_reason_and_a_tested_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    reasons = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    tested = {
        canonicalize_name(requirement.name): requirement
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        for requirement in [Requirement(line)]
    }
    for line in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        requirement = Requirement(line)
        assert re.search(rf"`{re.escape(requirement.name)}(\[\w+\])?`", reasons), requirement.name
        (pin,) = tested[canonicalize_name(requirement.name)].specifier
        assert pin.operator == "=="
        assert requirement.specifier.contains(pin.version), line
