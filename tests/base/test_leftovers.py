"""What a writer that was killed leaves in a folder is removed at the next start, and nothing else is."""
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from mfdl.base import files
from mfdl.base.files import clear_unfinished, seal, unseal, write_whole

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and locks")
WRITER = """
import os, sys, time
from mfdl.base import files
def stuck(handle):
    print("writing", flush=True)
    time.sleep(60)
files.os.fsync = stuck
files.write_whole(sys.argv[1], b"half")
"""


@contextmanager
def writing(path):
    """A process in the middle of a write, whose file looks old; killed at the end, as by a power cut."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "writing\n"
        left, = path.parent.glob("*.unfinished")
        os.utime(left, (0, 0))
        yield left
    finally:
        process.kill()
        process.communicate()


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    with writing(tmp_path / "kept") as left:
        assert clear_unfinished(tmp_path) == [] and left.exists(), "its writer lives"
    assert left.exists()
    files._clear_once.cache_clear()
    write_whole(tmp_path / "other", b"whole")
    assert sorted(os.listdir(tmp_path)) == ["other"]


def test_only_what_is_certainly_left_is_removed(tmp_path):
    """Neither what is young, nor folders, links and files of other names."""
    name = "kept.0123456789abcdef.unfinished"
    (tmp_path / "young").mkdir()
    (tmp_path / "young" / name).touch()
    (tmp_path / "folder" / name).mkdir(parents=True)
    for other in ("story.unfinished", "kept.0123456789ABCDEF.unfinished", "kept.0123456789abcde.unfinished", ".0123456789abcdef.unfinished", f"{name}.txt"):
        (tmp_path / other).touch()
    (tmp_path / "target").touch()
    (tmp_path / name).symlink_to(tmp_path / "target")
    for path in tmp_path.rglob("*"):
        if path.parent.name != "young": os.utime(path, (0, 0), follow_symlinks=False)
    before = sorted(tmp_path.rglob("*"))
    assert [clear_unfinished(folder) for folder in (tmp_path, tmp_path / "young", tmp_path / "folder")] == [[], [], []]
    assert sorted(tmp_path.rglob("*")) == before


def test_writes_are_whole_and_leave_nothing(tmp_path, monkeypatch):
    for k in range(3): seal(tmp_path / "kept", {"k": k}, {})
    assert unseal(tmp_path / "kept")[0] == {"k": 2} and os.listdir(tmp_path) == ["kept"]
    monkeypatch.setattr(files, "fcntl", None)  # as on Windows
    seal(tmp_path / "kept", {"k": 3}, {})
    assert unseal(tmp_path / "kept")[0] == {"k": 3} and os.listdir(tmp_path) == ["kept"]


INTERRUPTED = """
import os, runpy, signal, sys
wanted, entry = sys.argv[1:]
sys.argv[1:] = ["graphs"]
class Interrupt:
    def find_spec(self, name, *rest):
        if name == wanted: os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
if entry == "module": runpy.run_module("mfdl", run_name="__main__", alter_sys=True)
else:
    from mfdl.__main__ import main
    main()
"""


@pytest.mark.parametrize("module", ["mfdl.tools.cli", "numpy._core", "scipy.sparse", "mfdl.tools.names"])
@pytest.mark.parametrize("entry", ["module", "script"])
def test_ctrl_c_while_the_command_is_imported(module, entry):
    """One line, and the exit status that a shell expects, whatever is being imported."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, module, entry], capture_output=True, text=True, timeout=60,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped; nothing was written\n")


def test_a_command_that_works_is_interrupted_as_before():
    """The handler of the beginning is gone when the function of a command is called."""
    code = """
import signal, sys
from mfdl.tools import names
from mfdl.__main__ import main
import click
def look(*_, **__): print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
click.Command.invoke = look
sys.argv[1:] = ["graphs"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    assert done.stdout.splitlines()[-1:] == ["True"], done.stderr
