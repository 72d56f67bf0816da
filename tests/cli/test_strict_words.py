"""Strict options, terminals without UTF-8, missing packages: one line each."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from acenode import UserError
from acenode.cli import main
from acenode.config.vocabulary import parse


@pytest.mark.parametrize(("key", "text"), [("latent", "٣٣"), ("latent", "1_0"), ("learning_rate", "1_0.5"),
                                           ("learning_rate", "٠.٥")])
def test_numbers_of_settings_are_plain(key: str, text: str) -> None:
    with pytest.raises(UserError, match=f"{key} must be a .*number, not '{text}'"):
        parse(key, text)
    assert parse("latent", "10") == 10
    assert parse("learning_rate", "1e-3") == 1e-3


@pytest.mark.parametrize(("arguments", "words"), [
    (["train", "mnist", "--method", "ace", "--seed", "1_0"], "'1_0' is not a whole number"),
    (["train", "mnist", "--method", "ace", "--epochs", "٣"], "is not a whole number"),
    (["export", "last", "--to", "csv", "--out", ""], "it needs the name of a file or folder"),
])
def test_options_are_read_strictly(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_terminal_without_utf8_gets_replacements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "é😀").mkdir()
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    assert main(["list", "--runs", str(tmp_path)]) == 0
    sys.stdout.flush()
    assert b"??" in out.getvalue()


@pytest.mark.parametrize(("module", "package"), [("torch", "torch"), ("sklearn.manifold", "scikit-learn")])
def test_a_missing_package_is_one_line(module: str, package: str, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    def missing(options: object) -> int:
        raise ModuleNotFoundError(f"No module named '{module}'", name=module)

    monkeypatch.setattr("acenode.cli.runs.list_runs", missing)
    assert main(["list"]) == 2
    assert f"is not installed: run `pip install {package}`" in capsys.readouterr().err
