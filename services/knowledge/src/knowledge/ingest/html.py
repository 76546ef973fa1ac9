"""HTML to Markdown: headings, paragraphs, lists, tables and code as text. Nothing is fetched, no script runs."""

import codecs
import re
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode

from knowledge.ingest.documents import Unreadable, primary_language

MAX_HTML_BYTES = 16 * 1024 * 1024
"""The parsed tree takes about ten times the file."""

_SKIPPED = re.compile(
    "script|style|template|noscript|svg|math|iframe|object|embed|canvas|audio|video|nav|footer|button|select|textarea|title"
)
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|caption|d[dlt]|details|div|fieldset|fig(ure|caption)|footer|form|h[1-6]|header|hr|li|main|ol|p"
    "|pre|section|summary|table|tr|ul"
)
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
MAX_DEPTH = 10_000
"""Of open elements: the parser is quadratic in them."""

# Void elements, and those that end by themselves where the next one begins.
_SHALLOW = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr|p|li|t[drh]|d[td]|option|tbody|thead", re.IGNORECASE)
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)")
SNIFFED_BYTES = 1024
_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s{0,9}=\s{0,9}["']?\s{0,9}([A-Za-z0-9_:.-]{1,40})""", re.IGNORECASE)
# What would begin a heading, a fence or an HTML block, where the author only wrote a paragraph.
_LOOKS_LIKE_MARKUP = re.compile(r"#{1,6}(\s|$)|```|~~~|<")
_FENCE = re.compile(r"`{3,}")


def read_html(raw: bytes) -> dict[str, str]:
    """`content` as Markdown, and `title` and `language` where the page names them.

    Raises:
        UnicodeDecodeError: it is not text in its encoding.
        Unreadable: too large, too deep, or without text.
    """
    if len(raw) > MAX_HTML_BYTES:
        raise Unreadable(f"HTML of more than {MAX_HTML_BYTES} bytes; split it")
    html = _decode(raw)
    if _depth(html) > MAX_DEPTH:
        raise Unreadable(f"HTML with more than {MAX_DEPTH} elements inside each other")
    tree = LexborHTMLParser(html)
    found: dict[str, str] = {}
    if (title := tree.css_first("head > title")) and (text := _collapsed(title.text())):
        found["title"] = text
    if (root := tree.root) and (language := primary_language(root.attributes.get("lang"))):
        found["language"] = language
    start = tree.css_first("main") or tree.body or root
    found["content"] = _Markdown().write(start) if start else ""
    if not found["content"]:
        raise Unreadable("HTML without text; a page that is made by scripts must be saved as it looks")
    return found


def _depth(html: str) -> int:
    """How many elements are open at once, at most; a little too many where ends are left out."""
    depth = deepest = 0
    for closing, name in _TAG.findall(html):
        if not _SHALLOW.fullmatch(name):
            depth = max(0, depth - 1) if closing else depth + 1
            deepest = max(deepest, depth)
    return deepest


def _decode(raw: bytes) -> str:
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return raw.decode("utf-16")
    declared = _CHARSET.search(raw[:SNIFFED_BYTES])
    try:
        encoding = codecs.lookup(declared[1].decode()).name if declared else "utf-8"
    except LookupError:
        encoding = "utf-8"
    # As browsers do: Latin-1 on the web is Windows-1252; a declaration in ASCII bytes cannot be of UTF-16.
    mended = {"iso8859-1": "cp1252", "ascii": "cp1252", "utf-8": "utf-8-sig"}
    return raw.decode("utf-8-sig" if encoding.startswith("utf-16") else mended.get(encoding, encoding))


def _collapsed(text: str) -> str:
    return " ".join(text.split())


class _Markdown:
    """Takes a tree in document order."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._inline: list[str] = []
        self._prefix = ""
        self._preformatted = 0

    def write(self, root: LexborNode) -> str:
        """The text below `root`, blocks separated by blank lines."""
        for node, leaving in _walk(root):
            if node.is_text_node:
                self._inline.append(node.text_content or "")
            elif leaving:
                self._leave(node.tag or "")
            else:
                self._enter(node.tag or "")
        self._end()
        return "\n\n".join(self._blocks)

    def _enter(self, tag: str) -> None:
        if _BLOCK.fullmatch(tag):
            self._end()
            self._prefix = HEADINGS.get(tag, "- " if tag == "li" else self._prefix)
            self._preformatted += tag == "pre"
        elif tag == "br":
            self._inline.append("\n" if self._preformatted else " ")

    def _leave(self, tag: str) -> None:
        if _BLOCK.fullmatch(tag):
            self._end()
            self._prefix = ""
            self._preformatted -= tag == "pre"
        elif tag in ("td", "th"):
            self._inline.append(" | ")

    def _end(self) -> None:
        """The inline text so far is a block."""
        text = "".join(self._inline)
        self._inline.clear()
        if self._preformatted:
            if text.strip():
                fence = max(_FENCE.findall(text), key=len, default="``") + "`"
                self._blocks.append(f"{fence}\n{text.strip(chr(10))}\n{fence}")
            return
        text = _collapsed(text).removesuffix(" |")
        if text:
            escape = "\\" if _LOOKS_LIKE_MARKUP.match(text) and not self._prefix else ""
            self._blocks.append(self._prefix + escape + text)
            self._prefix = ""


def _walk(root: LexborNode) -> Iterator[tuple[LexborNode, bool]]:
    """Each node and whether it is being left; without recursion, for pages nest as deep as they like."""
    stack = [(root, False)]
    while stack:
        node, leaving = stack.pop()
        if leaving or node.is_text_node:
            yield node, leaving
            continue
        if not node.is_element_node or _SKIPPED.fullmatch(node.tag or "") or "hidden" in node.attributes:
            continue
        yield node, False
        stack.append((node, True))
        stack.extend((child, False) for child in reversed(list(node.iter(include_text=True))))
