"""A sandbox that runs generated code in a subprocess, with limits on time, memory, output and files.

The child is an isolated interpreter (`-I`) with an empty environment and a temporary working directory. What the code
prints is discarded. `run_function` gives the code a short list of builtins, so that it can neither import nor open
anything. `run_program` is for answers of real models, which import modules: it allows a list of pure ones, and an audit
hook ends the child at the first use of a file, process, socket or signal. That stops what a model writes by mistake. It
is no protection against malicious code; for that, run the whole evaluation in a container.
"""

import json
import subprocess
import sys
import tempfile
from typing import Any

CPU_LIMIT_S = 1
PROGRAM_CPU_LIMIT_S = 10
WALL_LIMIT_S = 30.0
"""The limit is generous, because a busy machine may not run the child for seconds. The limit on CPU time stops endless
loops."""
MEMORY_LIMIT_BYTES = 256 * 2**20
RESULT_LIMIT_CHARS = 100_000

MODULES = (
    "_strptime array bisect cmath collections copy dataclasses datetime decimal enum fractions functools heapq "
    "itertools math numbers operator random re statistics string textwrap typing unicodedata"
).split()
"""The modules that a program may import, which only compute and do not reach outside the process. It may also import
`sys`, but gets only its numbers. The first module is one that datetime needs."""

LIMITS = """
import ast, builtins, json, os, resource, sys
job = json.load(sys.stdin)
out = os.fdopen(os.dup(1), "w")
devnull = os.open(os.devnull, os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(devnull, fd)
resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_limit_s"],) * 2)
resource.setrlimit(resource.RLIMIT_AS, (job["memory_limit_bytes"],) * 2)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
"""
ANSWER = """
# The limit on files holds for what the generated code could write; our answer leaves by a pipe.
out.write(json.dumps(results))
out.flush()
os._exit(0)
"""
FUNCTION_CHILD = """
allowed = '''abs all any bool dict divmod enumerate filter float int isinstance len list map max min pow print
range repr reversed round set sorted str sum tuple zip True False None Exception ValueError IndexError'''
scope = {"__builtins__": {name: getattr(builtins, name) for name in allowed.split() if hasattr(builtins, name)}}
results = []
try:
    exec(compile(job["source"], "<answer>", "exec"), scope)
    for literal in job["inputs"]:
        results.append(repr(scope[job["function"]](ast.literal_eval(literal)))[: job["result_limit_chars"]])
except BaseException:
    results = None
"""
PROGRAM_CHILD = """
import importlib
for name in job["modules"]:
    importlib.import_module(name)
outside = "open os. subprocess. socket. shutil. signal. ctypes. pty. fcntl. mmap. tempfile. glob. import".split()
numbers = "maxsize maxunicode float_info version_info getrecursionlimit setrecursionlimit getsizeof".split()
harmless_sys = type(sys)("sys")
vars(harmless_sys).update({name: getattr(sys, name) for name in numbers})
real_import, exit_at_once = builtins.__import__, os._exit
def imported(name, globals=None, locals=None, fromlist=(), level=0):
    if name == "sys":
        return harmless_sys
    if level or name.split(".")[0] not in job["modules"]:
        raise ImportError(f"{name} cannot be imported here")
    return real_import(name, globals, locals, fromlist, level)
def hook(event, arguments, exit_at_once=exit_at_once, outside=tuple(outside)):
    if event.startswith(outside):
        exit_at_once(1)
scope = {name: value for name, value in vars(builtins).items() if name not in ("open", "input", "breakpoint")}
scope = {"__name__": "__main__", "__builtins__": scope | {"__import__": imported}}
sys.addaudithook(hook)
try:
    exec(compile(job["source"], "<answer>", "exec"), scope)
    results = ["passed"]
except BaseException:
    results = None
"""


def run_function(source: str, function: str, inputs: tuple[str, ...]) -> list[str] | None:
    """Execute `source`, call `function` on each input, a Python literal, and return the results as literals.

    The result is None if the code does not compile, has no such function, raises, exits, or exceeds a limit.
    """
    job = {"source": source, "function": function, "inputs": inputs, "result_limit_chars": RESULT_LIMIT_CHARS}
    return _run(FUNCTION_CHILD, job, CPU_LIMIT_S)


def run_program(source: str) -> bool:
    """Whether a whole program, including its assertions, runs to its end within the limits."""
    return _run(PROGRAM_CHILD, {"source": source, "modules": MODULES}, PROGRAM_CPU_LIMIT_S) == ["passed"]


def _run(child: str, job: dict[str, Any], cpu_limit_s: int) -> list[str] | None:
    """Return what the script `child` leaves in `results`; None if it ended before."""
    job |= {"cpu_limit_s": cpu_limit_s, "memory_limit_bytes": MEMORY_LIMIT_BYTES}
    with tempfile.TemporaryDirectory() as directory:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", LIMITS + child + ANSWER],
                input=json.dumps(job),
                capture_output=True,
                text=True,
                timeout=WALL_LIMIT_S,
                cwd=directory,
                env={},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
    try:
        results = json.loads(done.stdout)
    except ValueError:
        return None
    return results if isinstance(results, list) else None
