"""Runs a generated function in a subprocess of its own, with limits on time, memory, output and files.

The child is an isolated interpreter (`-I`) with an empty environment and a temporary working directory; the
generated code gets a short list of builtins, so it can neither import nor open anything. What it prints goes nowhere.
"""

import json
import subprocess
import sys
import tempfile

CPU_LIMIT_S = 1
WALL_LIMIT_S = 30.0
"""Generous, since a busy machine may not run the child for seconds; what loops is stopped by the limit on CPU time."""
MEMORY_LIMIT_BYTES = 256 * 2**20
RESULT_LIMIT_CHARS = 100_000

CHILD = """
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
# The limit on files holds for what the generated code could write; our answer leaves by a pipe.
out.write(json.dumps(results))
out.flush()
os._exit(0)
"""


def run_function(source: str, function: str, inputs: tuple[str, ...]) -> list[str] | None:
    """Define `source`, call `function` on each input (a Python literal); the results as literals.

    None if it does not compile, has no such function, raises, exits, takes too long or too much memory.
    """
    job = {
        "source": source,
        "function": function,
        "inputs": inputs,
        "cpu_limit_s": CPU_LIMIT_S,
        "memory_limit_bytes": MEMORY_LIMIT_BYTES,
        "result_limit_chars": RESULT_LIMIT_CHARS,
    }
    with tempfile.TemporaryDirectory() as directory:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", CHILD],
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
