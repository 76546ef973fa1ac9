# ruff: noqa: RUF001 - the sign of a path is meant
"""HTML and PDF: what becomes of a page, and the sentence for what cannot be taken."""

import time
from io import BytesIO
from pathlib import Path

import pytest
from pypdf import PdfWriter

from knowledge.ingest.chunking import chunk
from knowledge.ingest.documents import DocumentInput, Reject
from knowledge.ingest.sources import find_files, read_file

MARKER = "Zwiebelkuchen"
PAGE = """<!doctype html><html lang="de-AT"><head><title> Hand
 buch </title><style>p { color: red }</style><script>alert("Zwiebelkuchen")</script></head>
<body><nav>Startseite</nav><main><h1>Pflege</h1><p>Ein <b>Ab</b>satz &amp; mehr<br>neu</p>lose
<ul><li>eins<ul><li>innen</li></ul></li><li><p>zwei</p></li></ul>
<table><tr><th>Art</th><th>Wasser</th></tr><tr><td>Farn</td><td>viel</td></tr></table>
<pre><code># kein Titel
  x</code></pre><p># auch keiner</p><p hidden>Zwiebelkuchen</p>
<h2>Im <i>Winter</i></h2><div>wenig<p>Licht</p>und Wasser</div><img src="http://127.0.0.1:9/x.png" alt="Bild">
<iframe src="http://127.0.0.1:9/"></iframe></main><footer>Zwiebelkuchen</footer></body></html>"""


def read(folder: Path, name: str, raw: bytes | str) -> DocumentInput | Reject:
    """The one item of a file, at its place; a reject repeats nothing of the file."""
    (folder / name).write_bytes(raw.encode() if isinstance(raw, str) else raw)
    [(place, found)] = read_file(folder / name, folder)
    assert place == name
    if isinstance(found, Reject):
        assert (found.place, found.document_id) == (name, Path(name).stem)
        assert MARKER not in found.reason
    return found


def taken(folder: Path, name: str, raw: bytes | str) -> DocumentInput:
    """The document of a file."""
    found = read(folder, name, raw)
    assert isinstance(found, DocumentInput), found
    return found


def refused(folder: Path, name: str, raw: bytes | str) -> str:
    """The sentence of the reject of a file."""
    found = read(folder, name, raw)
    assert isinstance(found, Reject), found
    return found.reason


def pdf(*pages: str, catalog: str = "", info: str = "") -> bytes:
    """A PDF with one line of text a page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {catalog} >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, text in enumerate(pages):
        lines = " ".join(f"({line}) Tj 0 -20 Td" for line in text.split("\n") if line)
        stream = f"BT /F1 12 Tf 50 700 Td {lines} ET"
        font = "/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] {font} /Contents {5 + 2 * number} 0 R >>")
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects.append(f"<< {info} >>")
    out = b"%PDF-1.7\n"
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("cp1252")
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + (head + trailer).encode()


def test_pages_are_found(tmp_path: Path) -> None:
    """By their endings, in any case."""
    for name in ("a.html", "b.HTM", "c.pdf", "d.docx"):
        (tmp_path / name).write_text("x")
    assert [path.name for path in find_files(tmp_path)] == ["a.html", "b.HTM", "c.pdf"]


def test_html_becomes_markdown(tmp_path: Path) -> None:
    """Text and its order stay; scripts, styles, navigation, footers and what is hidden go; the page names title and language."""
    found = taken(tmp_path, "seite.html", PAGE)
    assert (found.id, found.title, found.language, found.markdown) == ("seite", "Hand buch", "de", True)
    assert found.content.split("\n\n") == [
        "# Pflege",
        "Ein Absatz & mehr neu",
        "lose",
        "- eins",
        "- innen",
        "- zwei",
        "Art | Wasser",
        "Farn | viel",
        "```\n# kein Titel\n  x\n```",
        "\\# auch keiner",
        "## Im Winter",
        "wenig",
        "Licht",
        "und Wasser",
    ]


def test_the_headings_of_html_are_in_the_titles_of_its_chunks(tmp_path: Path) -> None:
    """As with Markdown."""
    chunks, rejects = chunk(taken(tmp_path, "seite.html", PAGE), "seite.html")
    assert rejects == []
    assert [one.title for one in chunks] == ["Hand buch › Pflege", "Hand buch › Pflege › Im Winter"]


def test_html_without_a_title_takes_its_first_heading_or_its_name(tmp_path: Path) -> None:
    """And without a language it names none."""
    found = taken(tmp_path, "a.htm", "<h1>Farn</h1><p>Text")
    assert (found.title, found.language) == ("Farn", "und")
    assert taken(tmp_path, "b.htm", "<p>Text").title == "b"
    assert taken(tmp_path, "c.htm", f"<title>{'x' * 2000}</title><p>Text").title == "x" * 1024


@pytest.mark.parametrize(("given", "expected"), [("DE", "de"), ("de-CH-1996", "de"), ("zh_Hans", "zh"), ("", "und"), ("deutsch", "und")])
def test_the_language_of_a_page_is_its_first_part(tmp_path: Path, given: str, expected: str) -> None:
    """So that a filter on `de` finds pages for Austria too; nonsense is no language."""
    assert taken(tmp_path, "a.html", f'<html lang="{given}"><p>Text').language == expected


@pytest.mark.parametrize(
    "raw",
    [
        "<p>Gie\u00dfen".encode(),
        b"\xef\xbb\xbf" + "<p>Gie\u00dfen".encode(),
        "<p>Gie\u00dfen".encode("utf-16"),
        b'<meta charset="windows-1252"><p>Gie\xdfen',
        b'<meta http-equiv="Content-Type" content="text/html; charset=ISO-8859-1"><p>Gie\xdfen',
        '<meta charset="utf-16"><p>Gie\u00dfen'.encode(),
        '<meta charset="klingon"><p>Gie\u00dfen'.encode(),
    ],
)
def test_html_is_read_in_its_encoding(tmp_path: Path, raw: bytes) -> None:
    """As its byte order mark or its declaration says, else as UTF-8."""
    assert taken(tmp_path, "a.html", raw).content == "Gie\u00dfen"


def test_html_that_is_not_in_its_encoding_is_a_reject(tmp_path: Path) -> None:
    """Better than with its umlauts lost."""
    assert "UTF-8" in refused(tmp_path, "a.html", b"<p>Gie\xdfen")


@pytest.mark.parametrize("raw", ["", "<html><body></body></html>", "<script>document.write('Zwiebelkuchen')</script>", "<title>T</title>"])
def test_html_without_text_is_a_reject(tmp_path: Path, raw: str) -> None:
    """With what to do."""
    assert "without text" in refused(tmp_path, "a.html", raw)


def test_html_that_nests_too_deeply_is_a_reject_at_once(tmp_path: Path) -> None:
    """The parser would be busy for minutes; what is merely deep goes in."""
    started = time.monotonic()
    assert "inside each other" in refused(tmp_path, "a.html", "<div>" * 200_000)
    assert taken(tmp_path, "b.html", "<div>" * 5000 + "tief").content == "tief"
    assert taken(tmp_path, "c.html", "<ul>" + "<li>x" * 20_000).content.startswith("- x")
    assert time.monotonic() - started < 20


def test_html_that_is_too_large_is_a_reject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit."""
    monkeypatch.setattr("knowledge.ingest.html.MAX_HTML_BYTES", 10)
    assert "10 bytes" in refused(tmp_path, "a.html", "<p>" + MARKER)


def test_visible_text_that_looks_like_markup_begins_no_heading_and_no_block(tmp_path: Path) -> None:
    """It would swallow the headings after it."""
    for text in ("&lt;!-- offen", "``` offen", "~~~ offen", "# offen", "&lt;script&gt; offen"):
        chunks, _ = chunk(taken(tmp_path, "a.html", f"<p>{text}</p><h2>Winter</h2><p>wenig</p>"), "a.html")
        assert [one.title for one in chunks] == ["a", "a › Winter"], text


def test_a_pdf_is_its_text(tmp_path: Path) -> None:
    """Pages in order, words that were broken at a line's end whole again, title and language of the file."""
    raw = pdf("Die Pflan-\nze braucht Licht.", "Im Winter wenig Wasser.", catalog="/Lang (de-DE)", info="/Title (Hand  buch)")
    found = taken(tmp_path, "a.pdf", raw)
    assert (found.id, found.title, found.language, found.markdown) == ("a", "Hand buch", "de", False)
    assert found.content == "Die Pflanze braucht Licht.\n\nIm Winter wenig Wasser."
    plain = taken(tmp_path, "b.pdf", pdf("Text"))
    assert (plain.title, plain.language) == ("b", "und")


def test_a_pdf_without_text_is_a_reject(tmp_path: Path) -> None:
    """A scan: with what to do."""
    assert "OCR" in refused(tmp_path, "a.pdf", pdf("", ""))


@pytest.mark.parametrize("password", ["geheim", ""])
def test_an_encrypted_pdf_is_a_reject(tmp_path: Path, password: str) -> None:
    """Also one that opens without a password and forbids copying."""
    writer = PdfWriter(BytesIO(pdf(MARKER)))
    writer.encrypt(password, "owner", algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    assert "encrypted" in refused(tmp_path, "a.pdf", out.getvalue())


@pytest.mark.parametrize(
    "raw", [b"", b"%PDF-1.7", MARKER.encode(), b"\x00" * 100, pdf("Text")[:300], pdf("Text").replace(b"/Kids", b"/Kinds")]
)
def test_a_broken_pdf_is_a_reject(tmp_path: Path, raw: bytes) -> None:
    """Whatever the library makes of it."""
    assert "PDF" in refused(tmp_path, "a.pdf", raw)


@pytest.mark.parametrize(
    ("limit", "value", "word"),
    [("MAX_PAGES", 1, "1 pages"), ("MAX_CONTENT_CHARS", 10, "10 characters"), ("MAX_SECONDS", -1.0, "s to read")],
)
def test_a_pdf_beyond_a_limit_is_a_reject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, word: str) -> None:
    """Pages, characters, time: the sentence names it."""
    monkeypatch.setattr(f"knowledge.ingest.pdf.{limit}", value)
    assert word in refused(tmp_path, "a.pdf", pdf("Erste Seite", "Zweite Seite"))


def test_a_pdf_that_unfolds_into_much_more_is_a_reject(tmp_path: Path) -> None:
    """A stream is decompressed up to a limit."""
    import zlib

    packed = zlib.compress(b" " * 200_000_000, 9)
    stream = b"<< /Length %d /Filter /FlateDecode >>\nstream\n" % len(packed) + packed + b"\nendstream"
    raw = pdf("Text")
    begin, end = raw.index(b"<< /Length"), raw.index(b"endstream") + len(b"endstream")
    found = read(tmp_path, "a.pdf", raw[:begin] + stream + raw[end:])
    assert isinstance(found, Reject)
