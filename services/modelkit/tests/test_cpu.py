"""Threads from affinity and quota, both versions of control groups."""

from pathlib import Path

import pytest

from modelkit.cpu import Arithmetic, Cpus, arithmetic, this_arithmetic, usable_cpus


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def _cpus(tmp_path: Path, own: str = "", cores: int = 8) -> Cpus:
    (tmp_path / "self").write_text(own)
    return usable_cpus(tmp_path / "cgroup", tmp_path / "self", lambda: cores)


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000", Cpus(8, quota_limited=False)),
        ("200000 100000", Cpus(2, quota_limited=True)),
        ("150000 100000", Cpus(2, quota_limited=True)),
        ("50000 100000", Cpus(1, quota_limited=True)),
        ("1600000 100000", Cpus(8, quota_limited=False)),
        ("nonsense", Cpus(8, quota_limited=False)),
    ],
)
def test_version_2(tmp_path: Path, quota: str, expected: Cpus) -> None:
    """A part of a core is a thread; no more threads than cores."""
    _write(tmp_path / "cgroup", cpu__max=quota)
    assert _cpus(tmp_path, "0::/\n") == expected


def test_version_2_looks_at_the_groups_above_too(tmp_path: Path) -> None:
    """A pod's limit stands above the container's group."""
    _write(tmp_path / "cgroup" / "pod", cpu__max="300000 100000")
    _write(tmp_path / "cgroup" / "pod" / "container", cpu__max="max 100000")
    assert _cpus(tmp_path, "0::/pod/container\n") == Cpus(3, quota_limited=True)


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_version_1(tmp_path: Path, mount: str) -> None:
    """Two files, and -1 for no limit."""
    folder = tmp_path / "cgroup" / mount / "docker" / "abc"
    own = "5:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n"
    _write(folder, cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert _cpus(tmp_path, own) == Cpus(8, quota_limited=False)
    _write(folder, cpu__cfs_quota_us="250000")
    assert _cpus(tmp_path, own) == Cpus(3, quota_limited=True)


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    """As on a Mac; and there is always one thread."""
    assert usable_cpus(tmp_path / "no", tmp_path / "no", lambda: 4) == Cpus(4, quota_limited=False)
    assert usable_cpus(tmp_path / "no", tmp_path / "no", lambda: 0) == Cpus(1, quota_limited=False)


def test_this_machine_has_a_core() -> None:
    """With the real paths."""
    assert usable_cpus().count >= 1


X86_WITH_VNNI = "processor\t: 0\nmodel name\t: some Xeon\nflags\t\t: fpu avx2 avx512f avx512_vnni amx_tile amx_int8\nbugs\t\t: spectre_v1\n"
X86_WITHOUT = "processor\t: 0\nflags\t\t: fpu sse4_2 avx avx2 fma\n"
ALDER_LAKE = "flags\t\t: fpu avx2 avx_vnni\n"
GRAVITON = "processor\t: 0\nFeatures\t: fp asimd evtstrm aes asimdhp asimddp\nCPU part\t: 0xd0c\n"
GRAVITON_3 = "Features\t: fp asimd asimddp i8mm bf16\n"
SAPPHIRE_RAPIDS = "flags\t\t: fpu avx512_vnni avx512_bf16 amx_bf16 amx_tile amx_int8\n"
OLD_ARM = "Features\t: fp asimd evtstrm crc32\n"


@pytest.mark.parametrize(
    ("cpuinfo", "pays", "saturates", "bf16"),
    [
        (X86_WITH_VNNI, True, False, False),
        (SAPPHIRE_RAPIDS, True, False, True),
        (ALDER_LAKE, True, False, False),
        (X86_WITHOUT, False, True, False),
        (GRAVITON, True, False, False),
        (GRAVITON_3, True, False, True),
        (OLD_ARM, False, False, False),
        ("model name\t: avx512_vnni in a name is no flag\n", False, False, False),
        ("", False, False, False),
    ],
)
def test_instructions_tell_what_int8_and_bf16_are_worth(cpuinfo: str, pays: bool, saturates: bool, bf16: bool) -> None:
    """Both families; 16-bit sums are x86's own trap."""
    assert arithmetic(cpuinfo) == Arithmetic(pays, saturates, bf16)


def test_a_machine_that_does_not_tell_promises_nothing(tmp_path: Path) -> None:
    """There is no such file on a Mac."""
    assert this_arithmetic(tmp_path / "no") == Arithmetic(int8_pays=False, saturates=False)
    (tmp_path / "cpuinfo").write_text(GRAVITON)
    assert this_arithmetic(tmp_path / "cpuinfo").int8_pays
