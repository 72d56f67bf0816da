"""The lock of a data set: one thread or process at a time, released when its process ends."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest

from acenode.data.folder import locked
from acenode.errors import UserError

HOLD = """
import sys, time
from pathlib import Path
from acenode.data.folder import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_thread_waits_for_the_lock(tmp_path):
    lock, order, waits = tmp_path / ".set.lock", [], threading.Event()

    def second() -> None:
        with locked(lock, waiting=waits.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(lock):
        thread.start()
        assert waits.wait(5)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


def test_the_lock_is_released_after_an_error(tmp_path):
    with pytest.raises(ValueError, match="inside"), locked(tmp_path / ".set.lock"):
        raise ValueError("inside")
    with locked(tmp_path / ".set.lock", waiting=lambda: pytest.fail("the lock was kept")):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_an_exited_process_does_not_keep_the_lock(tmp_path):
    lock = tmp_path / ".set.lock"
    child = os.fork()
    if child == 0:
        with locked(lock):
            os._exit(9)  # ends at once, as when killed: no cleanup code runs
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert lock.exists()
    with locked(lock, waiting=lambda: pytest.fail("a dead process holds the lock")):
        pass


def test_a_killed_process_does_not_keep_the_lock(tmp_path):
    path, waits = tmp_path / ".set.lock", threading.Event()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"

        def kill() -> None:
            waits.set()
            holder.send_signal(signal.SIGKILL)

        with locked(path, waiting=kill):
            pass
    assert waits.is_set()  # the other process did hold it
    with locked(path, waiting=lambda: pytest.fail("a killed process holds the lock")):
        pass


def test_a_lock_in_a_folder_that_cannot_be_created(tmp_path):
    (tmp_path / "taken").write_text("a note")
    with pytest.raises(UserError, match="set ACENODE_DATA"), locked(tmp_path / "taken" / ".set.lock"):
        pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_an_error(tmp_path, monkeypatch, code):
    def fail(*_args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(UserError, match=r"cannot write .*set\.lock .*: fix that, or set ACENODE_DATA"), \
            locked(tmp_path / ".set.lock"):
        pass
