"""The manifest that comes with the package, and the rules for what may stand in one."""

import pytest
from pydantic import ValidationError

from modelkit.errors import UnknownModelError
from modelkit.manifest import PinnedFile, manifest


def test_default_is_the_model_of_the_demo() -> None:
    """Without a name the demo's one model is meant, and it both embeds and scores."""
    spec = manifest().get(manifest().default)
    assert spec.id == "multilingual-e5-small"
    assert set(spec.kinds) == {"embedding", "late-interaction"}


@pytest.mark.parametrize("model_id", list(manifest().models))
def test_every_model_is_whole(model_id: str) -> None:
    """Each precision delivers a graph and a tokenizer; what embeds has pooling and dimension."""
    spec = manifest().get(model_id)
    for precision, chosen in spec.precisions.items():
        for source in chosen.sources:
            names = {file.name for file in source.files}
            assert "tokenizer.json" in names
            assert f"model_{precision}.onnx" in names or getattr(source, "convert", None)
    if "embedding" in spec.kinds:
        assert spec.pooling
        assert spec.dimension
        assert spec.query_prefix


def test_only_the_files_that_nobody_could_check_are_unverified() -> None:
    """No hash is invented: those that are not known are marked."""
    unverified = {
        (spec.id, precision)
        for spec in manifest().models.values()
        for precision, chosen in spec.precisions.items()
        for source in chosen.sources
        if any(file.unverified for file in source.files)
    }
    assert unverified == {("bge-reranker-v2-m3", "fp32")}


def test_a_file_needs_a_hash_or_the_mark() -> None:
    """Neither both nor none."""
    with pytest.raises(ValidationError, match="either a sha256 or"):
        PinnedFile(path="a", name="a")
    with pytest.raises(ValidationError, match="either a sha256 or"):
        PinnedFile(path="a", name="a", sha256="0" * 64, unverified=True)


def test_unknown_names_are_answered_with_those_that_are_there() -> None:
    """Of models and of precisions."""
    with pytest.raises(UnknownModelError, match="ms-marco-minilm-l12-v2"):
        manifest().get("ms-marco")
    with pytest.raises(UnknownModelError, match="there is int8"):
        manifest().get("ms-marco-minilm-l12-v2").choose("fp32")


def test_auto_takes_the_first_precision() -> None:
    """The manifest's order decides."""
    assert manifest().get("multilingual-e5-small").choose("auto") == "int8"


def test_models_are_found_by_kind() -> None:
    """A model may be of two kinds."""
    assert "multilingual-e5-small" in manifest().of_kind("late-interaction")
    assert "multilingual-e5-small" not in manifest().of_kind("cross-encoder")
