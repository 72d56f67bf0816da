"""The lock of a run: a second trainer is refused, a killed one leaves no lock behind."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from acenode.errors import UserError
from acenode.runs.lock import is_locked, try_lock
from acenode.runs.store import Run

HOLD = """
import sys, time
from pathlib import Path
from acenode.runs.lock import try_lock
from acenode.runs.store import Run
lock = try_lock(Run(Path(sys.argv[1])))
assert lock is not None
print("locked", flush=True)
time.sleep(60)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_second_lock_is_refused_until_the_first_is_released(run: Run) -> None:
    lock = try_lock(run)
    assert lock is not None
    assert try_lock(run) is None
    assert is_locked(run)
    lock.release()
    assert not is_locked(run)
    assert (run.path / "lock").exists()


def test_a_second_thread_is_refused(run: Run) -> None:
    lock = try_lock(run)
    assert lock is not None
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(try_lock(run)))
    thread.start()
    thread.join(10)
    assert found == [None]
    lock.release()


def test_a_lock_may_be_released_by_another_thread(run: Run) -> None:
    lock = try_lock(run)
    assert lock is not None
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join(10)
    assert not is_locked(run)


def test_a_killed_process_leaves_no_lock(run: Run) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run.path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        assert try_lock(run) is None
        holder.send_signal(signal.SIGKILL)
    lock = try_lock(run)
    assert lock is not None
    lock.release()


def test_looking_does_not_create_a_lock_file(run: Run) -> None:
    assert not is_locked(run)
    assert not (run.path / "lock").exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail(*_args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(UserError, match=r"cannot lock .*lock \(.*\): fix that, or keep runs in another folder with"):
        try_lock(run)
