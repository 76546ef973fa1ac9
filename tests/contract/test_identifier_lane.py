"""The identifier lane from text to answer: ingested, searched, fused and reranked, on each backend.

Every row is a question, passages that hold what it names in other spellings, and near misses. The near misses repeat the words of
the question, so both other legs prefer them, and so does the reranker. Still none may stand above a passage that holds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from knowledge.app import DISTRIBUTION, Adapters, new_gateway
from knowledge.deadline import Deadline
from knowledge.ingest.documents import DocumentInput
from knowledge.models import Identity, Outcome, Query, Reranking, Scope
from knowledge.ports import Backend
from knowledge.settings import IdentitySettings, ProcessSettings, RerankerSettings, SearchSettings, Settings, TimeSettings
from knowledge.telemetry import SERVICE
from servicekit.telemetry import set_up_telemetry
from services.knowledge.tests.fakes import FakeEmbedder, FakeReranker, reranking
from tests.contract.conftest import BACKENDS, make_place
from tests.contract.places import TENANT

READER = Identity(TENANT, "ada", frozenset({"reader"}))
TOP_K = 10


@dataclass(frozen=True)
class Row:
    """What is asked, what names the same, what does not."""

    asked: str
    same: tuple[str, ...]
    near: tuple[str, ...]

    @property
    def question(self) -> str:
        """The whole question."""
        return f"Was steht zu {self.asked} im Bestand?"

    def passages(self) -> dict[str, str]:
        """Texts by chunk id. A near miss looks like the question, a passage that holds the identifier does not."""
        near = {f"near-{place}": f"Was steht zu {text} im Bestand? Das steht zu {text} im Bestand." for place, text in enumerate(self.near)}
        return near | {f"same-{place}": f"Eintrag: {text}, abgelegt und geprüft." for place, text in enumerate(self.same)}


TIERS = [
    # Letters and digits: one form for hyphen, blank, underscore, nothing, and for small letters.
    Row("POL-55012", ("POL-55012", "POL 55012", "pol_55012", "POL55012"), ("POL-55021", "POL-5501", "POL-550123", "POL-055012", "55012")),
    Row("POL 55012", ("POL-55012", "POL55012", "pol-55012"), ("POL 55021", "POL 5501", "PLO 55012", "POL")),
    Row("pol55012", ("POL-55012", "POL 55012", "POL/55012", "POL.55012"), ("pol55021", "pol550", "spol55012", "pol55012x")),
    Row("pol-55012", ("POL 55012", "Pol-55012"), ("pol-55013", "pol-5501-2", "pol-550-12")),
    Row("ZS-204", ("ZS-204", "ZS204", "zs-204", "ZS 204"), ("ZS-240", "ZS-2040", "ZS-20", "ZT-204", "XZS-204")),
    Row("ZS 204", ("ZS-204", "ZS_204"), ("ZS 205", "ZS 2044", "204")),
    Row("X9", ("X9", "X-9", "x9"), ("X8", "X99", "9X", "XX9")),
    Row("A1-77", ("A1-77", "a1/77", "A-1-77"), ("A177", "A1-78", "A17-7", "A1")),
    Row("B2_99", ("B2-99",), ("B29-9", "B299", "B2-9")),
    Row("KL-7890-B", ("KL-7890-B", "KL 7890B", "kl7890b"), ("KL-7890-C", "KL-7890", "KL-7899-B")),
    Row("GATEWAY-118", ("gateway-118", "GATEWAY_118"), ("GATEWAY-181", "GATEWAY-11", "GATEWAY-1180")),
    Row("T12-Topf", ("T12-Topf", "T12", "T-12"), ("T13-Topf", "T2-Topf", "T120-Topf")),
    Row("POL-55012-Schaden", ("POL-55012", "Schaden-POL-55012"), ("POL-55021-Schaden", "Schaden")),
    Row("COVID-19", ("Covid-19", "COVID 19-Impfung, COVID-19"), ("COVID-91", "COVID", "SARS-19")),
    Row("H.264", ("H.264-Codec", "H264"), ("H.265", "H.26", "264")),
    Row("IL-10", ("IL10", "il-10-Spiegel"), ("IL-1", "IL-100", "IL-12")),
    Row(
        "550e8400-e29b-41d4-a716-446655440000",
        ("550E8400-E29B-41D4-A716-446655440000",),
        ("550e8400-e29b-41d4-a716-446655440001", "550e8400"),
    ),
    # Unicode: other dashes, full-width forms, invisible signs, lowered figures.
    Row("POL\u201355012", ("POL-55012", "POL\u201155012", "POL\u221255012"), ("POL\u201355021", "POL\u20135501")),
    Row(
        "\uff30\uff2f\uff2c\uff0d\uff15\uff15\uff10\uff11\uff12",
        ("POL-55012", "POL-\u200b55012"),
        ("\uff30\uff2f\uff2c\uff0d\uff15\uff15\uff10\uff12\uff11",),
    ),
    Row("PO\u00adL-55012", ("POL-55012",), ("PO-55012", "L-55012")),
    Row("ÖVM-4711", ("O\u0308VM-4711", "övm 4711, ÖVM 4711"), ("OVM-4711", "ÖVM-4712")),
    # Numbers: leading zeros count, digits are not turned around.
    Row("00123", ("00123",), ("123", "0123", "000123", "00132", "1230")),
    Row("Artikel 4711", ("4711", "Nr. 4711", "#4711"), ("Artikel 4712", "Artikel 47110", "Artikel 471", "Artikel 04711")),
    Row("55012", ("55012",), ("55021", "POL-55012", "5501")),
    Row("Rechnung-48213", ("Rechnung 48213", "rechnung-48213", "RECHNUNG_48213"), ("Rechnung-48231", "Rechnung-4821")),
    Row("1000000", ("1.000.000", "1,000,000"), ("1000001", "100000", "1.000")),
    # Groups.
    Row("2024/118", ("2024/118", "2024-118", "AZ 2024/118"), ("2024/181", "2024/11", "2023/118", "2024", "118")),
    Row("AZ 2024/118", ("AZ-2024/118", "az-2024-118"), ("AZ 2024/117", "AZ 2023/118", "XY 2024/118")),
    Row("12/2024/7", ("12-2024-7",), ("12/2024/8", "7/2024/12")),
    Row("55021-7", ("55021/7",), ("55021-8", "55021", "550217")),
    Row("4711-0815", ("4711-0815",), ("4711-0816", "0815-4711")),
    Row("NPK 7-3-6", ("NPK 7-3-6", "NPK-7-3-6"), ("NPK 7-3-9", "NPK 6-3-7", "NPK 7-3", "NPK")),
    Row("7-3-6", ("NPK 7-3-6", "7/3/6", "7\u20133\u20136"), ("7-3-9", "7-36", "73-6")),
    # Versions and addresses.
    Row("v2.19.1", ("2.19.1", "v2.19.1", "V 2.19.1"), ("v2.19.11", "v2.19", "2.1.91", "v2.19.1-rc1", "3.19.1")),
    Row("2.19.1", ("v2.19.1", "Version 2.19.1"), ("2.19.2", "12.19.1", "2.19", "2.19.1.4")),
    Row("v2.19", ("Version 2.19", "Release 2.19"), ("v2.91", "2.19", "v2.1")),
    Row("2.19.1-rc.1", ("v2.19.1-rc1", "2.19.1-RC.1"), ("2.19.1-rc.2", "2.19.1", "2.19.1-beta.1")),
    Row("192.168.0.1", ("192.168.0.1",), ("192.168.0.11", "192.168.1.0")),
    Row("Ticket 55012", ("pol_55012@firma.de und 55012",), ("https://firma.de/55012/hilfe", "info55012@firma.de")),
    Row("https://firma.de/ticket/POL-55012?von=7", ("POL-55012",), ("https://firma.de/ticket/POL-55021?von=7", "POL-55021")),
    Row("pol-55012@firma.de", ("POL 55012",), ("pol-55021@firma.de", "pol@firma.de")),
    # Standards, accounts, books, telephones.
    Row("DIN EN 1717", ("DIN EN 1717", "DIN-EN-1717", "din en 1717"), ("DIN EN 1771", "DIN 1717", "DIN EN 171", "DIN EN 17170", "EN 1717")),
    Row("EN 1717", ("DIN EN 1717", "EN 1717", "EN-1717"), ("EN 1718", "DIN 1717", "EN 717")),
    Row("ISO 9001", ("DIN EN ISO 9001:2015", "ISO 9001", "iso-9001"), ("ISO 9000", "ISO 90011", "DIN EN 9001")),
    Row("ISO/IEC 27001", ("ISO/IEC 27001:2022",), ("ISO/IEC 27002", "ISO 27001", "IEC 27001")),
    Row("DIN 18015-1", ("DIN 18015-1", "din-18015-1"), ("DIN 18015-2", "DIN 18051-1")),
    Row(
        "DE89 3704 0044 0532 0130 00",
        ("DE89370400440532013000", "de89 3704 0044 0532 0130 00"),
        ("DE89 3704 0044 0532 0130 01", "DE98 3704 0044 0532 0130 00", "3704 0044 0532"),
    ),
    Row("NL91 ABNA 0417 1643 00", ("NL91ABNA0417164300",), ("NL91 ABNA 0417 1643 01", "NL91 INGB 0417 1643 00")),
    Row("ISBN 978-3-16-148410-0", ("9783161484100", "978 3 16 148410 0"), ("ISBN 978-3-16-148411-0", "ISBN 978-3-16-1484")),
    Row(
        "0171 2345678",
        ("+49 171 2345678", "0171/2345678", "01712345678", "+49 (0)171 234 56 78"),
        ("0171 2345687", "0171 234567", "0172 2345678"),
    ),
    Row("0049 89 1234567", ("089 1234567", "(089) 12345-67"), ("089 1234576", "0049 98 1234567")),
    # A date is one day in every spelling, and a tier only where nothing stronger is asked for.
    Row(
        "12.03.2024",
        ("2024-03-12", "12. März 2024", "12.3.2024", "March 12, 2024", "12/03/2024"),
        ("12.03.2023", "13.03.2024", "12.2024", "2024"),
    ),
    Row("2024-03-12", ("12.03.2024", "2024-03-12T10:00"), ("2024-12-03", "2024-03-21", "2024-03")),
    Row("03/2024", ("2024-03", "03.2024"), ("03/2023", "04/2024", "2024")),
    Row("POL-55012 vom 12.03.2024", ("POL-55012",), ("POL-55021 vom 12.03.2024", "POL-5501 vom 12. März 2024", "2024-03-12")),
    Row("1000-1500", ("1000\u20131500",), ("1000-1600", "1000", "1500")),
    Row("ZS-204 bei 1000-1500", ("ZS 204",), ("ZS-205 bei 1000-1500", "1000-1500")),
    Row("08/15", ("08-15",), ("08/16", "8/15")),
    # Years, quantities, decimals and short terms beside a code lift nothing over it.
    Row("POL-55012 aus 2024", ("POL-55012",), ("POL-55021 aus 2024", "2024")),
    Row("POL-2024", ("POL-2024", "POL 2024", "pol_2024-Akte, POL2024"), ("POL-2023", "POL-20245", "2024")),
    Row("ZS-204 mit 500 ml", ("ZS204",), ("ZS-205 mit 500 ml", "500ml")),
    Row("ZS-204 bei pH 6,2", ("zs-204",), ("ZS-240 bei pH 6,2", "pH 6.2 und EC 1,4")),
    Row("POL-55012 über 12345 Euro", ("POL 55012",), ("POL-55021 über 12345 Euro", "12.345 €")),
    Row("N-Mangel bei T12", ("T-12",), ("N-Mangel bei T21", "N-Mangel, N, pH")),
    # Several at once: more of them is more.
    Row("POL-55012 und ZS-204", ("ZS 204 und POL 55012",), ("POL-55012 und ZS-205", "ZS-204 und POL-55021", "POL-55012")),
    Row("DIN EN 1717 für ZS-204", ("ZS-204 nach DIN EN 1717",), ("EN 1717 für ZS-204", "DIN EN 1717 für ZS-205")),
    # Words in capitals.
    Row("DER POLICE POL 55012 FEHLT ALLES", ("POL-55012",), ("DER POLICE POL 55021 FEHLT ALLES", "DER POLICE FEHLT ALLES")),
    Row("DEM BETRAG NR 55012 FEHLT ALLES", ("55012",), ("DEM BETRAG NR 55021 FEHLT ALLES",)),
]

NO_TIERS = [
    # What only carries meaning leaves the order to the other legs and the reranker, even where a passage holds it.
    Row("Seite 12", ("Seite 12",), ("Seite 21",)),
    Row("am 12345 Euro", ("12345 Euro",), ("12346 Euro",)),
    Row("dem Jahr 1989", ("1989",), ("1988",)),
    Row("den 1980er Jahren", ("1980er", "1980s"), ("1970er",)),
    Row("2023/24", ("2023/24",), ("2022/23",)),
    Row("18-24 Grad", ("18\u201324 Grad",), ("18-25 Grad",)),
    Row("18-24°C", ("18 - 24 °C",), ("18-25°C",)),
    Row("2-3 Wochen", ("2-3 Wochen",), ("3-4 Wochen",)),
    Row("500 ml", ("500ml",), ("400 ml",)),
    Row("6,5 %", ("6.5%",), ("6,6 %",)),
    Row("1.2 mS/cm", ("1,2 mS/cm",), ("1.3 mS/cm",)),
    Row("6,2", ("6.2",), ("6,3",)),
    Row("EC 1500 μS/cm", ("1500 μS/cm",), ("EC 1600 μS/cm",)),
    Row("pH", ("pH-Wert",), ("Wert",)),
    Row("K+ und NPK", ("K⁺, NPK",), ("Na+",)),
    Row("CO₂", ("CO2",), ("O2",)),
    Row("3-fach", ("3-fach",), ("4-fach",)),
    Row("24/7", ("24/7",), ("24/8",)),
    Row("NICHT IN DIE SONNE STELLEN", ("NICHT IN DIE SONNE STELLEN",), ("STELLEN",)),
    Row("info@firma.de", ("info@firma.de",), ("info2@firma.de",)),
]


@dataclass(frozen=True)
class Shown:
    """Chunk keys, best first, and how many identifiers of the question each of them matched."""

    keys: list[str]
    matched: Mapping[str, int]


Answers = Mapping[Row, tuple[Shown, Shown]]
"""Each row's hybrid list and its reranked one."""


def prefers_near_misses(_: str, documents: Sequence[str]) -> Reranking:
    """A reranker that is wrong about every row."""
    return reranking([0.1 if text.startswith("Eintrag") else 0.9 for text in documents])


async def ask_all(backend: Backend) -> Answers:
    """One index for all rows; each row searches its own category."""
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    adapters = Adapters(backend, FakeEmbedder(), FakeReranker(prefers_near_misses), None)
    identity = IdentitySettings(auth_jwt_secret="s" * 32, knowledge_env="development")
    times = TimeSettings(retrieval_timeout_s=30, search_deadline_s=120)
    settings = Settings(SearchSettings(), RerankerSettings(), times, identity, ProcessSettings())
    gateway = new_gateway(settings, adapters, telemetry, time.monotonic)
    rows = [*TIERS, *NO_TIERS]
    documents = [
        DocumentInput(
            id=f"row-{place}",
            language="de",
            category=f"row-{place}",
            allowed_roles=["reader"],
            chunks=[{"id": key, "content": text} for key, text in row.passages().items()],
        )
        for place, row in enumerate(rows)
    ]
    try:
        outcomes = await gateway.ingestor.ingest([(one.id, one) for one in documents], tenant=TENANT, source="lane")
        assert [one.rejects for one in outcomes if one.rejects] == []
        answers = {}
        for document, row in zip(documents, rows, strict=True):
            scope = Scope("", (("category", (document.category,)),), TOP_K, None)
            shown = []
            for rerank in (False, True):
                query = Query(row.question, (), TOP_K, (scope,), rerank=rerank, language="de")
                answer = await gateway.pipeline.search(query, READER, Deadline.after(60))
                assert answer.rerank.status is (Outcome.APPLIED if rerank else Outcome.SKIPPED), row
                passages = [result.candidate for result in answer.results]
                keys = {text: key for key, text in row.passages().items()}
                names = [keys[one.passage.content] for one in passages]
                shown.append(Shown(names, {key: len(one.matched_identifiers) for key, one in zip(names, passages, strict=True)}))
            answers[row] = (shown[0], shown[1])
        return answers
    finally:
        await backend.aclose()
        telemetry.shutdown()


@pytest.fixture(scope="module", params=BACKENDS)
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """The answers of one backend to all rows."""
    place = make_place(request.param, tmp_path_factory.mktemp("lane"), request)
    yield asyncio.run(ask_all(place.connect()))
    place.remove()


@pytest.mark.parametrize("row", TIERS, ids=lambda row: row.asked)
def test_no_near_miss_stands_above_what_was_asked_for(answers: Answers, row: Row) -> None:
    """The passages that hold the identifier come first, in whatever spelling, before and after reranking."""
    for shown in answers[row]:
        assert sorted(shown.keys) == sorted(row.passages())
        assert set(shown.keys[: len(row.same)]) == {key for key in row.passages() if key.startswith("same")}
        assert all(shown.matched[key] > 0 for key in shown.keys[: len(row.same)])


@pytest.mark.parametrize("row", NO_TIERS, ids=lambda row: row.asked)
def test_what_names_nothing_forms_no_tier(answers: Answers, row: Row) -> None:
    """The reranker's order stands: every near miss first, as it said."""
    _, reranked = answers[row]
    assert sorted(reranked.keys) == sorted(row.passages())
    assert [key.startswith("near") for key in reranked.keys] == [True] * len(row.near) + [False] * len(row.same)
