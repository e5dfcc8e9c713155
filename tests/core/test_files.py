"""Files are whole or absent."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interp.core import files
from interp.core.files import (
    atomic_write,
    cache_dir,
    check_folder,
    read_json,
    read_json_lines,
    read_sealed_json,
    sha256_file,
    write_json,
    write_sealed_json,
)


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "new" / "a.txt"
    with atomic_write(path) as temporary:
        temporary.write_text("whole")
        assert temporary.name == f"a.txt.tmp-{os.getpid()}"
        assert temporary.parent == path.parent
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_half():
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, call, full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"new": 2})
    monkeypatch.undo()
    assert read_json(path) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="folder"):
        write_json(tmp_path / "folder", 1)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_bytes_are_flushed_before_the_name_and_the_name_after(tmp_path, monkeypatch):
    calls = []
    replace = os.replace
    monkeypatch.setattr(files, "sync", lambda path: calls.append(("sync", Path(path).name)))
    monkeypatch.setattr(
        files.os, "replace", lambda a, b: (calls.append(("replace", Path(b).name)), replace(a, b))
    )
    with atomic_write(tmp_path / "a") as temporary:
        temporary.write_text("x")
    assert calls == [("sync", f"a.tmp-{os.getpid()}"), ("replace", "a"), ("sync", tmp_path.name)]


def test_json_round_trip(tmp_path):
    value = {"a": [1, 2.5, None, True], "b": {"c": "ü"}}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_has_no_nan(tmp_path, value):
    with pytest.raises(ValueError, match=r"a\.json"):
        write_json(tmp_path / "a.json", {"x": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b'{"a": 1', b"\xff\xfe\x00", b""])
def test_a_broken_json_file_is_named(tmp_path, content):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.json is not valid JSON"):
        read_json(path)


def test_sha256_reads_every_byte(tmp_path):
    data = os.urandom((1 << 20) + 17)
    (tmp_path / "x").write_bytes(data)
    assert sha256_file(tmp_path / "x") == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"INTERP_CACHE": "/a/b", "XDG_CACHE_HOME": "/x"}, Path("/a/b")),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/interp")),
        ({"HOME": "/home/me"}, Path("/home/me/.cache/interp")),
        ({"HOME": "/home/me", "INTERP_CACHE": "~/c"}, Path("/home/me/c")),
    ],
)
def test_the_cache_folder_follows_the_environment(monkeypatch, variables, expected):
    for name in ("INTERP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_dir() == expected


def test_a_folder_is_checked_before_it_is_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    check_folder("out", tmp_path / "new" / "folder")
    assert not (tmp_path / "new").exists()
    for path in ("file", "file/below"):
        with pytest.raises(ValueError, match=r"out='.*': .*/file is a file"):
            check_folder("out", tmp_path / path)
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    with pytest.raises(ValueError, match="can't be written to"):
        check_folder("out", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ('{"a": -Infinity}', "-Infinity is no JSON number"),
        ('{"a": 1e999}', "too large"),
        ('{"a": 1, "a": 2}', "'a' comes twice"),
        ("[1]", "holds a list, not a dict"),
        ("3", "holds a int, not a dict"),
        ('{"b": 1}', "lacks 'a', 'c'"),
    ],
)
def test_a_json_file_is_not_believed_as_it_stands(tmp_path, content, message):
    path = tmp_path / "meta.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"(?s)meta.json.*{message}"):
        read_json(path, dict, ("a", "c"))


def test_nan_of_other_libraries_may_be_let_pass(tmp_path):
    (tmp_path / "a.json").write_text("[NaN, Infinity, 1e999]")
    assert repr(read_json(tmp_path / "a.json", nan=True)) == "[nan, inf, inf]"


def test_pipes_and_devices_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        for read in (read_json, sha256_file, lambda path: list(read_json_lines(path))):
            with pytest.raises(ValueError, match="is not a regular file"):
                read(path)


def test_a_broken_line_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 3, is not valid JSON"):
        list(read_json_lines(path))


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    names = [f"a.json.tmp-{pid}" for pid in (process.pid, os.getppid(), "mine", "\u00b2", 2**80)] + [
        "b.json.tmp-1"
    ]
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / "c.json.tmp-999999").touch()  # a live writer on another machine, perhaps
    write_json(tmp_path / "a.json", 1)
    write_json(tmp_path / "c.json", 1)
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {*names, "a.json", "c.json", "c.json.tmp-999999"} - {names[0], f"a.json.tmp-{2**80}"}


def test_a_sealed_file_says_when_it_was_changed(tmp_path):
    path = tmp_path / "meta.json"
    content = {"step": 15, "nested": {"a": [1, 2.5, None], "2": "\u00fc"}, "tuple": (1, 2), 3: "x"}
    write_sealed_json(path, content)
    assert read_sealed_json(path, ("step",)) == json.loads(json.dumps(content))
    text = path.read_text()
    for before, after in (("15", "14"), ("2.5", "2.50001"), ("null", "0"), ('"x"', '"y"')):
        path.write_text(text.replace(before, after))
        with pytest.raises(ValueError, match=r"meta\.json was changed after it was written"):
            read_sealed_json(path)
    path.write_text(text.replace("\n", ""))  # how it is laid out says nothing
    assert read_sealed_json(path)["step"] == 15
    with pytest.raises(ValueError, match=r"meta\.json lacks 'other'"):
        read_sealed_json(path, ("other",))
