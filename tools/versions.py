"""Run the tests of accounts, noise and protocols with the newest and the lowest versions of what the project needs: `make versions`.

The newest with each interpreter from Python 3.12 on that is found, the lowest with the interpreter that runs this.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEEDED = [f"{ROOT}[train,agree,notebooks,sdp,parquet,accountants]", "--group", f"{ROOT / 'pyproject.toml'}:tests"]
TESTS = ["tests/accounting", "tests/noise", "tests/protocol"]
NEWER = [f"python3.{minor}" for minor in range(12, 20)]


def works(name: str) -> bool:
    "Whether an interpreter is there, and starts: a stand-in of a version manager may not."
    found = shutil.which(name)
    return bool(found) and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0


def cases() -> list[tuple[str, str]]:
    "Interpreters, and which versions to take."
    return [(sys.executable, "lowest-direct"), *((name, "highest") for name in NEWER if works(name))]


def tested(python: str, versions: str) -> bool:
    "Whether all tests pass in an environment of its own."
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder) / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "venv", inside.parent.parent], check=True)
        subprocess.run([inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", "uv"], check=True)
        install = [inside, "-m", "uv", "pip", "install", "-q", "--python", inside, "--resolution", versions]
        subprocess.run([*install, *NEEDED], check=True)
        print(f"{python}, {versions}:", flush=True)
        settings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([inside, "-m", "pytest", "-n", "auto", *TESTS], cwd=ROOT, env=settings)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(not all([tested(*case) for case in cases()]))
