"""What can go wrong with model files; every message is a sentence for the person who has to act.

ModelError
 ├─ UnknownModelError    no such model, or no such precision of it
 ├─ UnverifiedFileError  a file without a known hash, and the user gave none
 ├─ DamagedFileError     a file's hash is not the pinned or recorded one
 ├─ UnavailableError     no source could be reached, or it did not deliver
 ├─ ConversionError      the conversion failed, or its result scores wrongly
 ├─ WrongScoreError      the files are what they should be, but what they say here is not
 └─ ComparisonError      torch could not be asked for scores to compare with
"""

from pathlib import Path


class ModelError(Exception):
    """Base of all; the message is whole and may be shown as it is."""


class UnknownModelError(ModelError):
    """The manifest has no such model, or not at the precision asked for."""


class UnverifiedFileError(ModelError):
    """A file whose hash nobody could check, and the user passed none."""


class UnavailableError(ModelError):
    """No source delivered the files."""


class ConversionError(ModelError):
    """Weights could not be converted, or the converted model fails its self-check."""


class WrongScoreError(ModelError):
    """A model gives other scores on this machine than those stored for it, and there is nothing to take its place."""


class ComparisonError(ModelError):
    """The user's interpreter gave no scores."""


class DamagedFileError(ModelError):
    """A file's content is not what was pinned."""

    def __init__(self, file: Path, *, expected: str, found: str) -> None:
        super().__init__(
            f"{file} is damaged: expected sha256 {expected}, found {found}. "
            "Delete the file and fetch it again (knowledge-models fetch), or copy a sound one into its place."
        )
        self.file = file
        self.expected = expected
        self.found = found
