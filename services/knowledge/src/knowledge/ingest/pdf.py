"""PDF to text. Bounded in pages, characters and time; what a stream may unfold into is bounded by the library."""

import logging
import re
from io import BytesIO
from time import monotonic

from pypdf import PdfReader

from knowledge.ingest.documents import MAX_CONTENT_CHARS, Unreadable, primary_language

MAX_PAGES = 2000
MAX_SECONDS = 120.0
"""Looked at between two pages."""

# A word that was broken at the end of a line.
_HYPHENATED = re.compile(r"(?<=[^\W\d_])[-\u00ad]\n(?=[^\W\d_A-ZÄÖÜ])")

# It would warn of every oddity, with parts of the file.
logging.getLogger("pypdf").setLevel(logging.CRITICAL)


def read_pdf(raw: bytes) -> dict[str, str]:
    """`content`, and `title` and `language` where the file names them.

    Raises:
        Unreadable: encrypted, broken, too long, or without text.
    """
    try:
        return _read(PdfReader(BytesIO(raw)))
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"not a readable PDF ({type(error).__name__}); save it anew, or print it to a PDF") from error


def _read(reader: PdfReader) -> dict[str, str]:
    if reader.is_encrypted:
        raise Unreadable("an encrypted PDF; save it without a password")
    if len(reader.pages) > MAX_PAGES:
        raise Unreadable(f"a PDF of more than {MAX_PAGES} pages; split it")
    ends_at = monotonic() + MAX_SECONDS
    pages: list[str] = []
    length = 0
    for page in reader.pages:
        pages.append(_HYPHENATED.sub("", page.extract_text()).strip())
        length += len(pages[-1])
        if length > MAX_CONTENT_CHARS:
            raise Unreadable(f"a PDF of more than {MAX_CONTENT_CHARS} characters; split it")
        if monotonic() > ends_at:
            raise Unreadable(f"a PDF that takes longer than {MAX_SECONDS:.0f} s to read; save it anew, or split it")
    content = "\n\n".join(filter(None, pages))
    if not content:
        raise Unreadable("a PDF without text, such as a scan; run text recognition (OCR) over it")
    title = " ".join(str((reader.metadata and reader.metadata.title) or "").split())
    named = {"title": title, "language": primary_language(str(reader.root_object.get("/Lang") or ""))}
    return {"content": content, **{name: value for name, value in named.items() if value}}
