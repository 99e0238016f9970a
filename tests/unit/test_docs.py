"""What the documents say is there is there."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("training/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


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
