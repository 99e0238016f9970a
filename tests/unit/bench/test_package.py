"""Measurements stand beside the library, which does without them."""

import re
import subprocess
import sys
from pathlib import Path

import simsd_bench

ROOT = Path(__file__).parents[3]
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "simsd_bench":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import importlib.util
importlib.util.find_spec = lambda name, find=importlib.util.find_spec: None if name == "simsd_bench" else find(name)
from simsd.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def without_measurements(*argv: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process that has no simsd_bench."""
    command = [sys.executable, "-c", WITHOUT, *argv]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_a_load_is_planned_without_measurements() -> None:
    planned = without_measurements("plan", "--rate", "5")
    assert (planned.returncode, planned.stderr) == (0, "")
    assert planned.stdout.startswith("pairs ")


def test_what_measures_says_what_to_install() -> None:
    for argv in (("bench", "decode", "--quick"), ("plan", "--check")):
        refused = without_measurements(*argv)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert re.fullmatch(r"simsd \w+: error: .*simsd_bench.*pip install 'simsd-serve\[bench\]'.*\n", refused.stderr)
    assert without_measurements("bench", "decode", "--help").returncode == 0


def test_help_reads_no_measurement() -> None:
    code = (
        "import sys; from simsd.cli.main import build_parser; build_parser()\n"
        "sys.exit(any(name.split('.')[0] == 'simsd_bench' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_tasks_of_lm_eval_name_files_that_exist() -> None:
    tasks = sorted((ROOT / "simsd_bench" / "lm_eval").glob("*.yaml"))
    files = [line.split()[1] for task in tasks for line in task.read_text().splitlines() if "test: " in line]
    assert len(files) == len(tasks) == 2
    assert all((ROOT / file).is_file() for file in files), files


def test_the_table_of_modules_is_whole_and_true() -> None:
    package = Path(str(simsd_bench.__file__)).parent
    modules = {".".join(path.relative_to(package).with_suffix("").parts) for path in package.glob("**/*.py")}
    told = re.findall(r"^\| `([\w.]+)` \|", str(simsd_bench.__doc__), flags=re.MULTILINE)
    scripts = {"lm_eval.make_questions"}  # a command of its own, in the folder of what it writes
    assert set(told) == {name for name in modules if not name.endswith("__init__")} - scripts
    assert not [name for name in told if "." in name and len(set(name.split("."))) == 1]
